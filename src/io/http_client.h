// HTTP GET over libcurl: redirects followed by hand, time-outs, cancellation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adder {

struct HttpOptions {
  int connect_timeout_s = 15;
  int stall_timeout_s = 30;  // a transfer that moves less than 1 byte/s for so long is broken
  int max_redirects = 8;
};

struct HttpGet {
  std::string url;
  // Sent as "Authorization: Bearer" to the origin (scheme, host, port) of `url` alone. A redirect
  // that leaves the origin drops it for the rest of the chain.
  std::string token;
  int64_t range_from = 0;  // > 0: "Range: bytes=N-"
};

// Names in lower case.
using HttpResponseHeaders = std::map<std::string, std::string, std::less<>>;

struct HttpHop {
  bool same_origin = true;  // as the request's url
  HttpResponseHeaders headers;
};

struct HttpResponse {
  int status = 0;             // 0: no answer came
  std::string url;            // that gave the answer
  std::vector<HttpHop> hops;  // one per redirect, then the answer itself
  int64_t retry_after_s = 0;  // 0: the server names no time

  // Of the answer; empty when absent.
  std::string header(std::string_view name) const;
};

struct HttpResult {
  enum class End {
    kComplete,   // the whole body was handed over
    kStopped,    // on_response did not want the body
    kCancelled,  // the cancel flag was raised
    kBroken,     // the network failed; see `error`
  };
  End end = End::kComplete;
  HttpResponse response;
  std::string error;
  bool may_retry = false;    // kBroken: the same request can succeed later
  bool unreachable = false;  // kBroken: the name did not resolve or nobody answered the connect
};

class HttpClient {
 public:
  explicit HttpClient(const HttpOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Called once when the final answer's headers are in; false leaves the body alone.
  using OnResponse = std::function<bool(const HttpResponse&)>;
  using OnBody = std::function<void(std::span<const std::byte>)>;

  // Any status counts as an answer. Exceptions of the callbacks pass through.
  // Throws Error(kIo) for a redirect that is refused (too many, not http(s), https to http) and
  // Error(kBadInput) for a malformed url. `cancel` may be null; it is seen within 0.1 s.
  HttpResult get(const HttpGet& request, const OnResponse& on_response, const OnBody& on_body,
                 const std::atomic<bool>* cancel);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "https://host:443" of a url, for messages and comparison.
// Throws Error(kBadInput) unless it is http(s)://host[:port][/...] without user name or password.
std::string url_origin(const std::string& url);

// Percent-encodes everything but unreserved characters and those in `keep`.
std::string url_escape(std::string_view text, std::string_view keep = "");

}  // namespace adder
