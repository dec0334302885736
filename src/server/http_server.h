// An HTTP/1.1 server with streaming replies, time-outs and limits against hostile clients, API
// keys, CORS and TLS. It knows nothing of what is served: a handler gets every request that is
// well-formed and allowed, and answers through its HttpReply when it likes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "server/http_options.h"
#include "server/http_reply.h"
#include "server/http_request.h"

namespace adder {

// Called on the server's only thread, which moves the bytes of all connections: it must not block,
// and hands longer work to another thread. An exception becomes a 500 without its text.
using HttpHandler = std::function<void(HttpRequest&&, std::shared_ptr<HttpReply>)>;

// Answered here, without the handler: OPTIONS, with and without CORS; requests without a valid key;
// everything malformed, too large or too slow. HEAD reaches the handler as GET.
class HttpServer {
 public:
  // Listens when it returns. Throws Error(kBadInput) for an option out of range or unusable TLS
  // files, Error(kIo) if the host and port cannot be listened on.
  HttpServer(HttpServerOptions options, HttpHandler handler);
  // Ends all connections at once; replies that live on do nothing. Like drain(), not to be called
  // on the server's thread.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // Stops listening, closes idle connections, lets requests that have begun be answered, and
  // returns when all connections have ended; those that have not by `timeout` are ended then.
  void drain(std::chrono::milliseconds timeout);

  HttpStats stats() const;  // from any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adder
