#include "server/api_error.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "server/json.h"

namespace adder {
namespace {

// OpenAI's types; "server_error" is also what its clients retry.
std::string_view error_type(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  if (status == 408) return "timeout";
  return status < 500 ? "invalid_request_error" : "server_error";
}

// The library's messages begin with the name of what is wrong; where that is a field of a request,
// it is the error's `param`.
std::string field_of(std::string_view message) {
  constexpr std::string_view kFields[] = {"session", "tokens", "prompt", "grammar", "n", "stop"};
  const std::string_view name = message.substr(0, message.find(':'));
  return std::find(std::begin(kFields), std::end(kFields), name) == std::end(kFields)
             ? std::string()
             : std::string(name);
}

}  // namespace

ApiError to_api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kBadInput:
    case ErrorCode::kUnsupported:
      return ApiError(400, error.what(), field_of(error.what()));
    case ErrorCode::kNotFound:
      return ApiError(404, error.what(), "", "not_found");
    case ErrorCode::kConflict:
      return ApiError(409, error.what(), "", "conflict");
    case ErrorCode::kTimeout:
      return ApiError(408, error.what(), "", "timeout");
    case ErrorCode::kBusy:
      return ApiError(429, error.what(), "", "busy");
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return ApiError(500, error.what());
}

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  OrderedJson inner;
  inner["message"] = error.what();
  inner["type"] = error_type(error.status());
  inner["param"] = or_null(error.param());
  inner["code"] = or_null(error.code());
  return dump(OrderedJson{{"error", std::move(inner)}});
}

}  // namespace adder
