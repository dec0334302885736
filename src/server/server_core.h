// What the connections of a server share. Internal to the server.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "server/http_access.h"
#include "server/http_server.h"

namespace adder {

class HttpConnection;

using HttpClock = std::chrono::steady_clock;

// Written by the server's thread, read by any.
struct HttpCounters {
  std::atomic<uint64_t> accepted{0}, refused{0}, open{0}, requests{0}, running{0}, gone{0};
  std::atomic<uint64_t> timeouts{0}, bytes_in{0}, bytes_out{0};
  std::array<std::atomic<uint64_t>, 6> answers_by_class{};
};

struct ServerCore {
  ServerCore(HttpServerOptions server_options, HttpHandler server_handler)
      : options(std::move(server_options)),
        handler(std::move(server_handler)),
        keys(options.api_keys),
        cors(options.cors_origins) {
    options.validate();
  }

  HttpServerOptions options;
  HttpHandler handler;
  ApiKeys keys;
  CorsPolicy cors;
  HttpCounters counters;
  size_t body_bytes = 0;  // of all requests that are being read or answered
  bool draining = false;  // this and the last one: the server's thread only
  std::function<void(std::function<void()>)> post;  // to the server's thread, from any
  std::function<void(HttpConnection&)> on_closed;   // may release the connection
};

}  // namespace adder
