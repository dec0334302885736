// A line on stderr that says what a long command is doing. Only on a terminal; redrawn at most ten
// times a second; cleared when it goes away.
#pragma once

#include <string>

namespace adder::cli {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_, visible_ = false;
  double drawn_ = 0;
};

}  // namespace adder::cli
