#include "server/replies.h"

namespace adder {

void send_json(HttpReply& reply, int status, std::string_view body) {
  reply.send(status, "application/json", body);
}

void send_error(HttpReply& reply, const ApiError& error) {
  HttpHeaders headers;
  if (error.status() == 429 || error.status() == 503) headers.emplace_back("Retry-After", "1");
  reply.send(error.status(), "application/json", error_body(error), headers);
}

void begin_event_stream(HttpReply& reply) {
  // Proxies that collect answers before they pass them on are asked not to.
  reply.begin_stream(200, "text/event-stream",
                     {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

}  // namespace adder
