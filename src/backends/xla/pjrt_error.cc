#include "backends/xla/pjrt_error.h"

namespace adder::xla {
namespace {

// Compilers quote whole programs in their messages.
constexpr size_t kLongestMessage = 1000;

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, kLongestMessage)) {
    const bool blank = static_cast<unsigned char>(c) <= ' ';
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  if (text.size() > kLongestMessage) line += " ...";
  return line;
}

std::optional<PjrtFailure> take_failure(const pjrt::Api& api, pjrt::Error* error) {
  if (error == nullptr) return std::nullopt;
  PjrtFailure failure;
  auto message = pjrt::arguments<pjrt::ErrorMessageArgs>();
  message.error = error;
  api.error_message(&message);
  if (message.message != nullptr) {
    failure.message = one_line({message.message, message.message_size});
  }
  auto code = pjrt::arguments<pjrt::ErrorGetCodeArgs>();
  code.error = error;
  if (api.error_get_code(&code) == nullptr) failure.code = code.code;
  auto destroy = pjrt::arguments<pjrt::ErrorDestroyArgs>();
  destroy.error = error;
  api.error_destroy(&destroy);
  return failure;
}

void check_pjrt(const pjrt::Api& api, pjrt::Error* error, std::string_view action,
                adder::ErrorCode code) {
  const auto failure = take_failure(api, error);
  if (!failure) return;
  const std::string_view reason =
      failure->code == pjrt::kResourceExhausted ? "the device has no memory left: " : "";
  fail(code, "cannot {}: {}{}", action, reason, failure->message);
}

void destroy_event(const pjrt::Api& api, pjrt::Event* event) {
  if (event == nullptr) return;
  auto args = pjrt::arguments<pjrt::EventArgs>();
  args.event = event;
  take_failure(api, api.event_destroy(&args));
}

void await_event(const pjrt::Api& api, pjrt::Event* event, std::string_view action) {
  if (event == nullptr) return;
  auto args = pjrt::arguments<pjrt::EventArgs>();
  args.event = event;
  pjrt::Error* error = api.event_await(&args);
  destroy_event(api, event);
  check_pjrt(api, error, action);
}

}  // namespace adder::xla
