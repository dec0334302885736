// Answers of the usual kinds.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "server/api_error.h"
#include "server/http_reply.h"

namespace adder {

void send_json(HttpReply& reply, int status, std::string_view body);
// With Retry-After where it helps to try again.
void send_error(HttpReply& reply, const ApiError& error);
void begin_event_stream(HttpReply& reply);

// Runs `work` and turns what it throws into the answer.
template <typename Work>
void answer_errors(HttpReply& reply, const Work& work) {
  try {
    work();
  } catch (const ApiError& error) {
    send_error(reply, error);
  } catch (const Error& error) {
    send_error(reply, to_api_error(error));
  } catch (const std::bad_alloc&) {
    send_error(reply, ApiError(503, "out of memory"));
  } catch (const std::exception&) {
    send_error(reply,
               ApiError(500, "internal error"));  // its text is none of the client's business
  }
}

}  // namespace adder
