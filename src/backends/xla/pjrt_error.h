// What a plugin says when a call fails.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "backends/xla/pjrt_api.h"
#include "core/error.h"

namespace adder::xla {

struct PjrtFailure {
  int code = 0;         // pjrt::ErrorCode among others
  std::string message;  // one line
};

// Frees the error that a call has returned; null is success.
std::optional<PjrtFailure> take_failure(const pjrt::Api& api, pjrt::Error* error);

// Throws Error(code) "cannot <action>: <message>".
void check_pjrt(const pjrt::Api& api, pjrt::Error* error, std::string_view action,
                adder::ErrorCode code = adder::ErrorCode::kIo);

// Waits for an event, frees it, and throws as check_pjrt. Null is an event that has passed.
void await_event(const pjrt::Api& api, pjrt::Event* event, std::string_view action);
void destroy_event(const pjrt::Api& api, pjrt::Event* event);

// A text of a plugin's as one line of bounded length.
std::string one_line(std::string_view text);

}  // namespace adder::xla
