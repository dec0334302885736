// Ends a stream of text at the first of several stop strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace adder {

class StopMatcher {
 public:
  // Empty stop strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Text that can be shown after `text` has arrived: everything but a tail that may be the
  // beginning of a stop string. Valid until the next call. After a match nothing more is given.
  std::string_view push(std::string_view text);
  // The tail that was held back, at the end of the stream.
  std::string_view finish();
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_, out_;
  bool matched_ = false;
};

}  // namespace adder
