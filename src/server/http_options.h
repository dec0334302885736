// What an HTTP server may be told, and what it reports.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_request.h"

namespace adder {

// One answered, refused or broken-off request.
struct HttpRecord {
  std::string method;  // as sent; empty, like path, where the request could not be read
  std::string path;
  std::string client;
  int status = 0;         // 499: the client was gone before an answer began
  uint64_t bytes = 0;     // of the answer, head included, handed to the operating system
  double seconds = 0;     // from the first byte of the request to the last of the answer
  bool complete = false;  // the whole answer was handed over
  std::string error;      // what() of an exception that the handler threw
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name, whose IPv4 address is preferred
  int port = 0;                    // 0: any free one

  // Beyond it, as many as `refusable_connections` get a 503, and the others are closed at once.
  size_t max_connections = 1024;
  size_t refusable_connections = 64;

  size_t url_limit = size_t{8} << 10;       // bytes; 414 beyond it
  size_t header_limit = size_t{16} << 10;   // bytes of request line and headers together; 431
  size_t body_limit = size_t{16} << 20;     // bytes; 413
  size_t bodies_limit = size_t{256} << 20;  // bytes of the bodies of all requests at a time; 503
  size_t stream_limit = size_t{4} << 20;  // unsent bytes of a stream; beyond, the client is dropped

  std::chrono::milliseconds header_timeout{10'000};  // from the first byte to the last of the head
  // A body may take this long and, in addition, the time that its bytes need at `body_rate`.
  std::chrono::milliseconds body_timeout{10'000};
  size_t body_rate = size_t{16} << 10;  // bytes per second
  std::chrono::milliseconds idle_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};  // without a byte taken by the client

  std::vector<std::string> methods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

  // With any key, requests need "Authorization: Bearer KEY" unless `is_public` says otherwise. It
  // is asked before the body is read, so the request has none.
  std::vector<std::string> api_keys;
  std::function<bool(const HttpRequest&)> is_public;

  // Requests must come to a name of this machine itself: 403 where Host is another, and where
  // Origin is, unless CORS names it. Against pages of other sites that a user of this machine looks
  // at, which can send requests to 127.0.0.1, and read the answers under a name that leads there.
  bool only_this_machine = false;

  std::vector<std::string> cors_origins;  // "https://host[:port]" each, or "*"; empty: no CORS

  std::string tls_certificate, tls_key;  // PEM files; both or neither

  HttpHeaders extra_headers = {{"X-Content-Type-Options", "nosniff"}};  // of every answer

  // The JSON body of an error made by the server. Empty: http_error_body().
  std::function<std::string(int status, std::string_view message)> render_error;
  // Called on the server's thread after each request.
  std::function<void(const HttpRecord&)> on_request_done;

  // Throws Error(kBadInput) naming the option that is wrong.
  void validate() const;
};

struct HttpStats {
  uint64_t accepted = 0;  // connections
  uint64_t refused = 0;   // of those, too many at a time
  uint64_t open = 0;      // connections now
  uint64_t requests = 0;  // whose head was read
  uint64_t running = 0;   // handed to the handler and not yet done
  uint64_t gone = 0;      // clients that closed, or were dropped, before their answer was complete
  uint64_t timeouts = 0;
  uint64_t bytes_in = 0, bytes_out = 0;        // without TLS's own
  std::array<uint64_t, 6> answers_by_class{};  // [4]: 4xx
};

// {"error": {"message", "type", "param", "code"}}, as OpenAI's API has it.
std::string http_error_body(int status, std::string_view message);

// "OK" for 200; empty for a status that has no name here.
std::string_view http_reason(int status);

// True for "localhost" and the addresses of the machine itself, brackets around IPv6 allowed. Any
// other name is not resolved, and gives false.
bool is_loopback(std::string_view host);

}  // namespace adder
