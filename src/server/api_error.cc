#include "server/api_error.h"

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

}  // namespace

ApiError to_api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kBadInput:
    case ErrorCode::kUnsupported:
      return ApiError(400, error.what());
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
