#include "pull_display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

namespace adder {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kQuietStart = seconds(1);
constexpr auto kRedraw = milliseconds(100);
constexpr auto kSpeedWindow = seconds(5);

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string percent(int64_t done, int64_t total) {
  if (total <= 0) return {};
  return fmt::format("{:3.0f} %  ", 100.0 * static_cast<double>(done) / static_cast<double>(total));
}

std::string amount(int64_t done, int64_t total) {
  const std::string have = format_bytes(static_cast<double>(done));
  return total < 0 ? have : have + " of " + format_bytes(static_cast<double>(total));
}

}  // namespace

std::string format_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  // 999.5 would print as 1e+03 with three digits.
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

std::string format_duration(double duration_s) {
  const auto whole = static_cast<int64_t>(std::llround(duration_s));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

PullDisplay::PullDisplay()
    : terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

PullDisplay::~PullDisplay() {
  clear();
}

void PullDisplay::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

double PullDisplay::speed(int64_t received, Clock::time_point now) {
  // Over a window: an average since the start hides a stall, single chunks jump.
  samples_.emplace_back(now, received);
  while (samples_.size() > 2 && now - samples_.front().first > kSpeedWindow) samples_.pop_front();
  const double elapsed = duration<double>(now - samples_.front().first).count();
  return elapsed > 0 ? static_cast<double>(received - samples_.front().second) / elapsed : 0;
}

std::string PullDisplay::status_line(const PullProgress& progress, Clock::time_point now) {
  std::string line = progress.file + "  " + percent(progress.file_done, progress.file_total) +
                     amount(progress.file_done, progress.file_total);
  if (progress.stage == PullProgress::Stage::kChecking) return line + "  checking";
  const double rate = speed(progress.received, now);
  line += fmt::format("  {}/s", format_bytes(rate));
  if (progress.total >= 0 && rate > 0) {
    line += "  ETA " + format_duration(static_cast<double>(progress.total - progress.done) / rate);
  }
  if (progress.total != progress.file_total) {
    line += "  | all: " + percent(progress.done, progress.total) +
            amount(progress.done, progress.total);
  }
  return line;
}

void PullDisplay::update(const PullProgress& progress) {
  const auto now = Clock::now();
  switch (progress.stage) {
    case PullProgress::Stage::kWaiting:
      clear();
      fmt::print(stderr, "{}\n", progress.note);
      return;
    case PullProgress::Stage::kFinished:
      if (terminal_ && !shown_) return;  // quick: the summary says enough
      clear();
      fmt::print(stderr, "{}  {}  verified\n", progress.file,
                 format_bytes(static_cast<double>(progress.file_total)));
      return;
    case PullProgress::Stage::kChecking:
    case PullProgress::Stage::kDownloading:
      break;
  }
  if (!terminal_ || now - start_ < kQuietStart || now - last_ < kRedraw) return;
  last_ = now;
  // A line that wraps could not be rewritten.
  const std::string line = status_line(progress, now).substr(0, terminal_width() - 1);
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace adder
