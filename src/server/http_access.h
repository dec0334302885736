// Who may use the server: API keys, and the browser pages of other origins (CORS).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_request.h"

namespace adder {

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);
  bool empty() const { return digests_.empty(); }
  // `authorization` is the value of that header. Takes the same time whichever key matches and
  // however much of a wrong one does: digests are compared, all of them, to their end.
  bool accepts(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;  // SHA-256
  static Digest digest_of(std::string_view key);
  std::vector<Digest> digests_;
};

class CorsPolicy {
 public:
  explicit CorsPolicy(std::vector<std::string> origins);
  bool allows(std::string_view origin) const;
  // The headers that any answer to the request carries.
  HttpHeaders headers(const HttpRequest& request) const;
  // Those of the answer to a preflight, in addition; empty if the request is none.
  HttpHeaders preflight_headers(const HttpRequest& request,
                                const std::vector<std::string>& methods) const;

 private:
  std::vector<std::string> origins_;
  bool any_ = false;
};

// Throws HttpRefusal(403) for a request that did not come to a name of this machine, or comes from
// a page of another one whose origin `cors` does not allow.
void check_this_machine(const HttpRequest& request, const CorsPolicy& cors);

// "GET, HEAD, POST"
std::string joined(const std::vector<std::string>& words);

}  // namespace adder
