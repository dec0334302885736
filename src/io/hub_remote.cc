#include "io/hub_remote.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/error.h"

namespace adder {
namespace {

// Fewer new bytes than this do not count as progress, so a server that hands out a little and
// hangs up cannot keep a download going for ever.
constexpr int64_t kProgressBytes = 1 << 20;

class TextSink : public HubSink {
 public:
  TextSink(std::string what, int64_t max_bytes) : what_(std::move(what)), max_bytes_(max_bytes) {}

  int64_t range_from() const override { return 0; }
  Verdict on_response(const HttpResponse&) override {
    text_.clear();
    return Verdict::kTake;
  }
  void on_body(std::span<const std::byte> bytes) override {
    if (static_cast<int64_t>(text_.size() + bytes.size()) > max_bytes_) {
      bad_input("{}: expected an answer of at most {} bytes, got more", what_, max_bytes_);
    }
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  bool is_complete() override { return true; }
  int64_t bytes_received() const override { return 0; }
  std::string take() { return std::move(text_); }

 private:
  std::string what_, text_;
  int64_t max_bytes_;
};

std::string checked_endpoint(std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  url_origin(endpoint);
  if (endpoint.find_first_of("?#") != std::string::npos) {
    bad_input("endpoint '{}': expected no query and no fragment", endpoint);
  }
  return endpoint;
}

std::string checked_token(std::string token) {
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  // Anything else could break out of the header line. The token itself stays out of the message.
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!visible) bad_input("HF_TOKEN: expected visible ASCII characters only");
  return token;
}

bool worth_retrying(int status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

}  // namespace

HubRemote::HubRemote(std::string endpoint, std::string token, const HttpOptions& http,
                     const RetryOptions& retry, const std::atomic<bool>* cancel, OnPause on_pause)
    : endpoint_(checked_endpoint(std::move(endpoint))),
      token_(checked_token(std::move(token))),
      retry_(retry),
      cancel_(cancel),
      on_pause_(std::move(on_pause)),
      http_(http) {}

void HubRemote::check_cancel() const {
  if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
    fail(ErrorCode::kIo, "cancelled; what was downloaded is kept, the same command resumes");
  }
}

void HubRemote::get(const std::string& path, const std::string& what, HubSink& sink) {
  int attempt = 0, refused_ranges = 0;
  int64_t mark = sink.bytes_received();
  for (;;) {
    check_cancel();
    // The sink hears of answers that carry the file; others are judged here by their status.
    HubSink::Verdict verdict = HubSink::Verdict::kTake;
    const auto on_response = [&](const HttpResponse& response) {
      if (response.status != 200 && response.status != 206 && response.status != 416) return false;
      verdict = sink.on_response(response);
      return verdict == HubSink::Verdict::kTake;
    };
    const HttpResult result = http_.get(
        {endpoint_ + path, token_, sink.range_from()}, on_response,
        [&](std::span<const std::byte> bytes) { sink.on_body(bytes); }, cancel_);
    check_cancel();
    const int status = result.response.status;
    std::string reason;
    if (result.end == HttpResult::End::kBroken) {
      // Before the first answer a failure is more likely a wrong address or no network at all
      // than a hiccup: say so at once.
      answered_ = answered_ || !result.unreachable;
      if (!result.may_retry || (result.unreachable && !answered_))
        throw HubUnavailable(what + ": " + result.error);
      reason = result.error;
    } else {
      answered_ = true;
      if (verdict == HubSink::Verdict::kAgain && ++attempt < retry_.attempts) continue;
      if (verdict == HubSink::Verdict::kRefused && ++refused_ranges < 3) continue;
      if (status == 200 || status == 206) {
        if (verdict == HubSink::Verdict::kTake && sink.is_complete()) return;
        reason = "the connection was closed early";
      } else if (worth_retrying(status)) {
        reason = fmt::format("{} answered {}", url_origin(result.response.url), status);
      } else {
        refuse(result.response, what);
      }
    }
    // A long download over a bad line may break many times, as long as it moves.
    if (sink.bytes_received() - mark >= kProgressBytes) {
      mark = sink.bytes_received();
      attempt = 0;
    }
    if (++attempt >= retry_.attempts) {
      throw HubUnavailable(fmt::format("{}: {} ({} attempts)", what, reason, retry_.attempts));
    }
    pause(fmt::format("{}: {}", what, reason), attempt, result.response.retry_after_s);
  }
}

std::string HubRemote::get_text(const std::string& path, const std::string& what,
                                int64_t max_bytes) {
  TextSink sink(what, max_bytes);
  get(path, what, sink);
  return sink.take();
}

void HubRemote::pause(const std::string& reason, int attempt, int64_t asked_s) {
  if (asked_s > retry_.longest_asked_s) {
    throw HubUnavailable(fmt::format("{}; the server asks to come back in {} s", reason, asked_s));
  }
  // first_pause * 2^(attempt - 1), at most longest_pause, at least what the server asks for.
  int64_t wait = retry_.first_pause_ms;
  for (int i = 1; i < attempt && wait < retry_.longest_pause_ms; ++i) wait *= 2;
  wait = std::max<int64_t>(std::min<int64_t>(wait, retry_.longest_pause_ms), asked_s * 1000);
  if (on_pause_) on_pause_(reason, static_cast<int>(wait));
  // Slept in slices of 50 ms, so that Ctrl-C is seen.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait);
  while (std::chrono::steady_clock::now() < end) {
    check_cancel();
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(
        std::chrono::milliseconds(50), end - std::chrono::steady_clock::now()));
  }
}

void HubRemote::refuse(const HttpResponse& response, const std::string& what) const {
  const std::string origin = url_origin(response.url);
  const std::string code = response.header("x-error-code");
  const char* token = token_.empty() ? "set HF_TOKEN to a token that may read it"
                                     : "the token in HF_TOKEN may not read it";
  // The Hub answers 401, not 404, for a repository that does not exist when no token is sent.
  switch (response.status) {
    case 401:
    case 403:
      if (code == "GatedRepo") {
        fail(ErrorCode::kIo, "{}: {} refused access ({}): accept its terms on the web page, and {}",
             what, origin, response.status, token);
      }
      fail(ErrorCode::kIo, "{}: {} refused access ({}): it is private, gated or does not exist; {}",
           what, origin, response.status, token);
    case 404:
      throw HubNotFound(fmt::format(
          "{}: not found on {} (404): no such repository, revision or file", what, endpoint_));
    default:
      fail(ErrorCode::kIo, "{}: {} answered {}", what, origin, response.status);
  }
}

}  // namespace adder
