#include "server/reply_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <utility>

#include "server/http_options.h"

namespace adder {
namespace {

// RFC 9110, section 5.6.7; strftime would follow the locale.
std::string http_date(std::time_t now) {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  ::gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)],
                     t.tm_mday, kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour,
                     t.tm_min, t.tm_sec);
}

// Whatever a caller puts into a header, it stays one line.
void append_header(std::string& out, std::string_view name, std::string_view value) {
  const auto append = [&out](std::string_view text) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    });
  };
  append(name);
  out += ": ";
  append(value);
  out += "\r\n";
}

}  // namespace

ReplyChannel::ReplyChannel(ReplyForm form, std::function<void()> wake)
    : form_(std::move(form)), wake_(std::move(wake)) {}

void ReplyChannel::append_head(int status, std::string_view content_type,
                               const HttpHeaders& headers, std::string_view framing) {
  status_ = status >= 200 && status <= 599 ? status : 500;
  pending_ += fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status_, http_reason(status_),
                          http_date(std::time(nullptr)));
  if (!content_type.empty()) append_header(pending_, "Content-Type", content_type);
  for (const HttpHeaders* list : {&std::as_const(form_.headers), &headers}) {
    for (const auto& [name, value] : *list) append_header(pending_, name, value);
  }
  body_ = !form_.no_body && status_ != 204 && status_ != 304;
  if (status_ != 204 && status_ != 304) pending_ += framing;
  if (!form_.keep_alive) {
    pending_ += "Connection: close\r\n";
  } else if (form_.http_1_0) {
    pending_ += "Connection: keep-alive\r\n";
  }
  pending_ += "\r\n";
}

void ReplyChannel::wake() {
  if (woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

ReplyChannel::Callbacks ReplyChannel::finish(State state) {
  state_ = state;
  wake();
  return std::exchange(callbacks_, {});
}

// Callbacks may own anything, this channel included, so they are destroyed without the lock.

void ReplyChannel::send(int status, std::string_view content_type, std::string_view body,
                        const HttpHeaders& headers) {
  Callbacks released;
  const std::lock_guard lock(mutex_);
  if (state_ != State::kWaiting) return;
  append_head(status, content_type, headers, fmt::format("Content-Length: {}\r\n", body.size()));
  if (body_ && wake_) pending_ += body;
  released = finish(State::kFinished);
}

void ReplyChannel::begin_stream(int status, std::string_view content_type,
                                const HttpHeaders& headers) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kWaiting) return;
  if (form_.http_1_0) form_.keep_alive = false;  // the end of the connection ends the body
  append_head(status, content_type, headers,
              form_.http_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
  state_ = State::kStreaming;
  wake();
}

void ReplyChannel::write(std::string_view chunk) {
  Callbacks released;
  const std::lock_guard lock(mutex_);
  // An empty chunk would be the last one.
  if (state_ != State::kStreaming || !body_ || chunk.empty() || !wake_) return;
  if (form_.http_1_0) {
    pending_ += chunk;
  } else {
    fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", chunk.size());
    pending_ += chunk;
    pending_ += "\r\n";
  }
  if (pending_.size() + in_flight_ > form_.stream_limit) {
    pending_ = {};
    gone_ = true;
    state_ = State::kOverflow;
  }
  wake();
}

void ReplyChannel::end() {
  Callbacks released;
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStreaming) return;
  if (body_ && !form_.http_1_0) pending_ += "0\r\n\r\n";
  released = finish(State::kFinished);
}

void ReplyChannel::abandon() {
  Callbacks released;
  const std::lock_guard lock(mutex_);
  if (state_ == State::kWaiting) {
    released = finish(State::kUnanswered);
  } else if (state_ == State::kStreaming) {
    released = finish(State::kCut);
  }
}

bool ReplyChannel::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void ReplyChannel::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    const bool open = state_ == State::kWaiting || state_ == State::kStreaming;
    if (wake_ && (open || state_ == State::kOverflow)) {
      callbacks_.push_back(std::move(callback));
      if (gone_) wake();
      return;
    }
    if (wake_ || !gone_ || state_ == State::kFinished) return;
  }
  callback();
}

ReplyChannel::Notice ReplyChannel::notice() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  return {state_ == State::kOverflow, gone_ ? std::exchange(callbacks_, {}) : Callbacks{}};
}

ReplyChannel::Output ReplyChannel::take() {
  const std::lock_guard lock(mutex_);
  Output out{std::exchange(pending_, {}), state_, form_.keep_alive};
  in_flight_ += out.bytes.size();
  if (state_ == State::kUnanswered) state_ = State::kWaiting;
  return out;
}

void ReplyChannel::sent(size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_flight_ -= std::min(bytes, in_flight_);
}

void ReplyChannel::close_after() {
  const std::lock_guard lock(mutex_);
  form_.keep_alive = false;
}

int ReplyChannel::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

ReplyChannel::Callbacks ReplyChannel::mark_gone() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  return std::exchange(callbacks_, {});
}

ReplyChannel::Callbacks ReplyChannel::disconnect(bool lost) {
  std::function<void()> released;
  const std::lock_guard lock(mutex_);
  gone_ = gone_ || lost;
  released = std::exchange(wake_, {});
  pending_ = {};
  return std::exchange(callbacks_, {});
}

}  // namespace adder
