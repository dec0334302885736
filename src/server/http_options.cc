#include "server/http_options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace adder {
namespace {

struct Reason {
  int status;
  std::string_view text;
};
constexpr std::array kReasons = {
    Reason{200, "OK"},
    Reason{201, "Created"},
    Reason{202, "Accepted"},
    Reason{204, "No Content"},
    Reason{304, "Not Modified"},
    Reason{400, "Bad Request"},
    Reason{401, "Unauthorized"},
    Reason{403, "Forbidden"},
    Reason{404, "Not Found"},
    Reason{405, "Method Not Allowed"},
    Reason{408, "Request Timeout"},
    Reason{409, "Conflict"},
    Reason{413, "Content Too Large"},
    Reason{414, "URI Too Long"},
    Reason{415, "Unsupported Media Type"},
    Reason{417, "Expectation Failed"},
    Reason{422, "Unprocessable Content"},
    Reason{429, "Too Many Requests"},
    Reason{431, "Request Header Fields Too Large"},
    Reason{499, "Client Closed Request"},
    Reason{500, "Internal Server Error"},
    Reason{501, "Not Implemented"},
    Reason{503, "Service Unavailable"},
    Reason{504, "Gateway Timeout"},
    Reason{505, "HTTP Version Not Supported"},
};

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

void require_positive(std::string_view name, int64_t value) {
  ADDER_CHECK(value > 0, "{}: expected more than 0, got {}", name, value);
}

}  // namespace

void HttpServerOptions::validate() const {
  ADDER_CHECK(port >= 0 && port <= 65535, "port: expected 0 to 65535, got {}", port);
  ADDER_CHECK(!host.empty(), "host: expected an address or a name, got nothing");
  require_positive("max_connections", static_cast<int64_t>(max_connections));
  require_positive("url_limit", static_cast<int64_t>(url_limit));
  require_positive("header_limit", static_cast<int64_t>(header_limit));
  require_positive("bodies_limit", static_cast<int64_t>(bodies_limit));
  require_positive("stream_limit", static_cast<int64_t>(stream_limit));
  require_positive("body_rate", static_cast<int64_t>(body_rate));
  require_positive("header_timeout", header_timeout.count());
  require_positive("body_timeout", body_timeout.count());
  require_positive("idle_timeout", idle_timeout.count());
  require_positive("write_timeout", write_timeout.count());
  for (size_t i = 0; i < api_keys.size(); ++i) {
    ADDER_CHECK(!api_keys[i].empty() && is_visible(api_keys[i]),
                "api_keys[{}]: expected one or more visible ASCII characters and no spaces", i);
  }
  for (size_t i = 0; i < cors_origins.size(); ++i) {
    const std::string& origin = cors_origins[i];
    const size_t slashes = origin.find("://");
    const bool is_origin = slashes != std::string::npos && slashes > 0 &&
                           slashes + 3 < origin.size() && is_visible(origin) &&
                           origin.find('/', slashes + 3) == std::string::npos;
    ADDER_CHECK(origin == "*" || is_origin,
                "cors_origins[{}]: expected \"*\" or scheme://host[:port] without a path, got '{}'",
                i, origin);
  }
  ADDER_CHECK(tls_certificate.empty() == tls_key.empty(),
              "{}: expected a file, as the other half is given",
              tls_key.empty() ? "tls_key" : "tls_certificate");
}

std::string http_error_body(int status, std::string_view message) {
  std::string_view type = status >= 500 ? "server_error" : "invalid_request_error";
  if (status == 401) type = "authentication_error";
  const nlohmann::json error = {
      {"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  return nlohmann::json{{"error", error}}.dump(-1, ' ', false,
                                               nlohmann::json::error_handler_t::replace);
}

std::string_view http_reason(int status) {
  const auto* found = std::find_if(kReasons.begin(), kReasons.end(),
                                   [=](const Reason& reason) { return reason.status == status; });
  return found == kReasons.end() ? "" : found->text;
}

bool is_loopback(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (equals_ignoring_case(host, "localhost")) return true;
  const std::string text(host);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&six)) return six.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&six) != 0;
}

}  // namespace adder
