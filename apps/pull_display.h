// Progress of `adder pull` on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "io/hub.h"

namespace adder {

// 1234567 -> "1.23 MB"; units of 1000, three digits.
std::string format_bytes(double bytes);
// 75 -> "1:15", 3675 -> "1:01:15".
std::string format_duration(double seconds);

// A terminal gets one line that is rewritten at most ten times a second, from one second after the
// start on; anything else gets a line per finished file. Failed attempts are told to both.
class PullDisplay {
 public:
  PullDisplay();
  ~PullDisplay();
  PullDisplay(const PullDisplay&) = delete;
  PullDisplay& operator=(const PullDisplay&) = delete;

  void update(const PullProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  std::string status_line(const PullProgress& progress, Clock::time_point now);
  double speed(int64_t received, Clock::time_point now);  // bytes/s over the last seconds
  void clear();

  bool terminal_;
  bool shown_ = false;  // a status line is on the screen
  Clock::time_point start_, last_;
  std::deque<std::pair<Clock::time_point, int64_t>> samples_;
};

}  // namespace adder
