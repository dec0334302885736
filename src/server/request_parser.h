// From the bytes of one request to an HttpRequest. Internal to the server.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/chunked_body.h"
#include "server/http_options.h"
#include "server/http_request.h"

namespace adder {

class RequestParser {
 public:
  explicit RequestParser(const HttpServerOptions& options) : options_(options) {}

  // `head` is the request line and the headers, with the empty line that ends them. Sets everything
  // of the request but body and client; where it throws HttpRefusal, at least what was read before.
  void parse_head(std::string_view head, HttpRequest& request);

  // After parse_head().
  bool http_1_0() const { return http_1_0_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }
  std::string_view method() const { return method_; }  // as sent
  bool done() const;                                   // the body is complete, or there is none

  // Consumes bytes of the body from the front of `bytes`, and no more than the body. Throws
  // HttpRefusal. Not to be called when done().
  void parse_body(std::string& bytes);
  size_t body_bytes() const { return body_.size(); }
  std::string take_body() { return std::move(body_); }

 private:
  void check_framing(const HttpRequest& request) const;

  const HttpServerOptions& options_;
  std::string method_;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool expects_continue_ = false;
  std::string body_;
  size_t body_left_ = 0;                // of a Content-Length
  std::optional<ChunkedBody> chunked_;  // where there is none
};

// Where the head ends that `bytes` begin with, 0 if there is more to come. `from` is where an
// earlier search ended, and is moved on. Throws HttpRefusal: 414 and 431 for a head that is too
// long, 400 for what cannot become one.
size_t find_head_end(std::string_view bytes, size_t& from, const HttpServerOptions& options);

}  // namespace adder
