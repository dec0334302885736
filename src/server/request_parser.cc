#include "server/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <limits>

#include "server/http_access.h"

namespace adder {
namespace {

namespace http = boost::beast::http;
using Code = boost::system::error_code;

constexpr std::array kKnownMethods = {"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                      "CONNECT", "OPTIONS", "TRACE", "PATCH"};

void check_method(const std::string& method, const std::vector<std::string>& served) {
  if (std::find(served.begin(), served.end(), method) != served.end()) return;
  if (std::find(kKnownMethods.begin(), kKnownMethods.end(), method) == kKnownMethods.end()) {
    throw HttpRefusal(501, "method: expected one of " + joined(served));
  }
  throw HttpRefusal(405, "method: expected one of " + joined(served), {{"Allow", joined(served)}});
}

std::string text_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

size_t count(const HttpRequest& request, std::string_view name) {
  return static_cast<size_t>(
      std::count_if(request.headers.begin(), request.headers.end(),
                    [&](const auto& header) { return equals_ignoring_case(header.first, name); }));
}

// Beast knows 1.0 and 1.1; another version is no mistake of form.
bool has_other_version(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t at = line.rfind(" HTTP/");
  if (at == std::string_view::npos || line.size() != at + 9) return false;
  if (std::count(line.begin(), line.end(), ' ') != 2) return false;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return digit(line[at + 6]) && line[at + 7] == '.' && digit(line[at + 8]);
}

[[noreturn]] void refuse(const Code& code, std::string_view head, size_t body_limit) {
  if (code == http::error::body_limit) {
    throw HttpRefusal(413, fmt::format("body: expected at most {} bytes", body_limit));
  }
  if (code == http::error::bad_version && has_other_version(head)) {
    throw HttpRefusal(505, "version: expected HTTP/1.0 or HTTP/1.1");
  }
  throw HttpRefusal(400, fmt::format("not a request in HTTP: {}", code.message()));
}

}  // namespace

void RequestParser::parse_head(std::string_view head, HttpRequest& request) {
  http::request_parser<http::empty_body> parser;
  // find_head_end() has checked the size.
  parser.header_limit(std::numeric_limits<uint32_t>::max());
  parser.body_limit(options_.body_limit);
  Code code;
  parser.put(boost::asio::buffer(head.data(), head.size()), code);
  // What Beast has read is there in any case, so that refusals know the origin and the method.
  const auto& message = parser.get();
  method_ = text_of(message.method_string());
  request.method = method_ == "HEAD" ? "GET" : method_;
  for (const auto& field : message) {
    request.headers.emplace_back(text_of(field.name_string()), text_of(field.value()));
  }
  const std::string target = text_of(message.target());
  request.path = target.substr(0, target.find('?'));
  if (code) refuse(code, head, options_.body_limit);
  if (!parser.is_header_done()) throw HttpRefusal(400, "not a request in HTTP");
  http_1_0_ = message.version() < 11;

  if (target.size() > options_.url_limit) {
    throw HttpRefusal(414, fmt::format("URL: expected at most {} bytes", options_.url_limit));
  }
  check_method(method_, options_.methods);
  check_framing(request);
  if (parser.chunked()) {
    chunked_.emplace(options_.body_limit, options_.header_limit);
  } else {
    body_left_ = parser.content_length().value_or(0);
  }
  keep_alive_ = parser.keep_alive();
  const bool whole_server = method_ == "OPTIONS" && target == "*";
  parse_target(whole_server ? "/" : std::string_view(target), request);
  if (const std::string* expect = request.header("Expect"); expect != nullptr && !http_1_0_) {
    if (!equals_ignoring_case(*expect, "100-continue")) {
      throw HttpRefusal(417, "Expect: expected 100-continue");
    }
    expects_continue_ = true;
  }
}

// Everything two readers of one stream of bytes could understand differently is refused: a request
// must not be able to hide another one from a proxy in front.
void RequestParser::check_framing(const HttpRequest& request) const {
  const size_t lengths = count(request, "Content-Length");
  if (lengths > 1) throw HttpRefusal(400, "Content-Length: expected one, got several");
  if (const std::string* length = request.header("Content-Length")) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (length->empty() || !std::all_of(length->begin(), length->end(), digit)) {
      throw HttpRefusal(400, "Content-Length: expected digits");
    }
  }
  const size_t encodings = count(request, "Transfer-Encoding");
  if (encodings > 0) {
    if (lengths > 0 || encodings > 1 || http_1_0_) {
      throw HttpRefusal(400, "Transfer-Encoding: expected once, in HTTP/1.1, without a length");
    }
    if (!equals_ignoring_case(*request.header("Transfer-Encoding"), "chunked")) {
      throw HttpRefusal(501, "Transfer-Encoding: expected chunked");
    }
  }
  const size_t hosts = count(request, "Host");
  if (hosts > 1 || (hosts == 0 && !http_1_0_)) {
    throw HttpRefusal(400, fmt::format("Host: expected one such header, got {}", hosts));
  }
}

bool RequestParser::done() const {
  return chunked_ ? chunked_->done() : body_left_ == 0;
}

void RequestParser::parse_body(std::string& bytes) {
  if (chunked_) return chunked_->read(bytes, body_);
  const size_t n = std::min(bytes.size(), body_left_);
  body_.append(bytes, 0, n);
  bytes.erase(0, n);
  body_left_ -= n;
}

size_t find_head_end(std::string_view bytes, size_t& from, const HttpServerOptions& options) {
  if (!bytes.empty() && (static_cast<unsigned char>(bytes[0]) <= 0x20 || bytes[0] == 0x7f ||
                         static_cast<unsigned char>(bytes[0]) >= 0x80)) {
    throw HttpRefusal(400, "not a request in HTTP");  // TLS on a plain port, for example
  }
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t found = bytes.find(kEnd, from);
  if (bytes.find("\n\n", from) < found) throw HttpRefusal(400, "line end: expected CR and LF");
  const size_t length = found == std::string_view::npos ? bytes.size() : found + kEnd.size();
  if (length > options.header_limit) {
    const size_t line = std::min(bytes.find("\r\n"), bytes.size());
    if (line > options.url_limit) {
      throw HttpRefusal(414, fmt::format("URL: expected at most {} bytes", options.url_limit));
    }
    throw HttpRefusal(431, fmt::format("headers: expected at most {} bytes", options.header_limit));
  }
  from = bytes.size() - std::min(bytes.size(), kEnd.size() - 1);
  return found == std::string_view::npos ? 0 : length;
}

}  // namespace adder
