#include "server/http_access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "core/error.h"
#include "server/http_options.h"

namespace adder {
namespace {

// A list of header names, so that a client's text is safe to send back.
bool is_name_list(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

// "[::1]:80" gives "[::1]".
std::string_view without_port(std::string_view authority) {
  const size_t bracket = authority.rfind(']');  // the colons before it are part of the address
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return authority.substr(0, colon);
}

}  // namespace

void check_this_machine(const HttpRequest& request, const CorsPolicy& cors) {
  const std::string* host = request.header("Host");
  if (host != nullptr && !is_loopback(without_port(*host))) {
    throw HttpRefusal(403, "Host: expected a name of this machine, such as localhost");
  }
  const std::string* origin = request.header("Origin");
  if (origin == nullptr || cors.allows(*origin)) return;
  const size_t scheme = origin->find("://");
  if (scheme == std::string::npos ||
      !is_loopback(without_port(std::string_view(*origin).substr(scheme + 3)))) {
    throw HttpRefusal(403, "Origin: expected a page of this machine, or one that CORS allows");
  }
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest_of(key));
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  if (EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-256 of an API key failed");
  }
  return digest;
}

bool ApiKeys::accepts(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (!equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  authorization.remove_prefix(kScheme.size());
  const size_t start = std::min(authorization.find_first_not_of(' '), authorization.size());
  const Digest digest = digest_of(authorization.substr(start));
  bool found = false;
  for (const Digest& key : digests_) {
    found |= CRYPTO_memcmp(key.data(), digest.data(), digest.size()) == 0;
  }
  return found;
}

CorsPolicy::CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {
  any_ = std::find(origins_.begin(), origins_.end(), "*") != origins_.end();
}

bool CorsPolicy::allows(std::string_view origin) const {
  return any_ || std::any_of(origins_.begin(), origins_.end(), [&](const std::string& allowed) {
           return equals_ignoring_case(allowed, origin);
         });
}

HttpHeaders CorsPolicy::headers(const HttpRequest& request) const {
  if (any_) return {{"Access-Control-Allow-Origin", "*"}};
  if (origins_.empty()) return {};
  // A cache must not hand one origin's answer to another, so this is said without an origin too.
  HttpHeaders out = {{"Vary", "Origin"}};
  const std::string* origin = request.header("Origin");
  if (origin != nullptr && allows(*origin))
    out.emplace_back("Access-Control-Allow-Origin", *origin);
  return out;
}

HttpHeaders CorsPolicy::preflight_headers(const HttpRequest& request,
                                          const std::vector<std::string>& methods) const {
  const std::string* origin = request.header("Origin");
  if (origin == nullptr || request.header("Access-Control-Request-Method") == nullptr ||
      !allows(*origin)) {
    return {};
  }
  HttpHeaders out = {{"Access-Control-Allow-Methods", joined(methods)},
                     {"Access-Control-Max-Age", "600"}};
  // "*" would leave out Authorization, and clients add names of their own.
  const std::string* names = request.header("Access-Control-Request-Headers");
  if (names != nullptr && is_name_list(*names)) {
    out.emplace_back("Access-Control-Allow-Headers", *names);
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace adder
