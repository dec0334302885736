#include "status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli_common.h"

namespace adder::cli {

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() {
  clear();
}

void StatusLine::show(const std::string& text) {
  const double now = seconds();
  if (!terminal_ || now - drawn_ < 0.1) return;
  drawn_ = now;
  visible_ = true;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

void StatusLine::clear() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

}  // namespace adder::cli
