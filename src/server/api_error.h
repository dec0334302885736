// Errors as OpenAI's clients expect them: a status and {"error": {message, type, param, code}}.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"

namespace adder {

class ApiError : public std::runtime_error {
 public:
  // param: the field of the body that is at fault, "messages[2].role"; empty: none.
  // code: for programs, "model_not_found"; empty: none.
  ApiError(int status, const std::string& message, const std::string& param = "",
           const std::string& code = "")
      : std::runtime_error(message), status_(status), param_(param), code_(code) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

// Throws a 400 whose message begins with the field.
template <typename... Args>
[[noreturn]] void bad_field(const std::string& param, fmt::format_string<Args...> format,
                            Args&&... args) {
  throw ApiError(400, param + ": " + fmt::format(format, std::forward<Args>(args)...), param);
}

// What the engine threw: bad input and unsupported things are 400, unknown names 404, taken names
// 409, no room 429, a deadline 408; the rest is 500.
ApiError to_api_error(const Error& error);

// {"error": ...}; bytes of the message that are not UTF-8 come out as U+FFFD.
std::string error_body(const ApiError& error);

}  // namespace adder
