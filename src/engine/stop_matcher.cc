#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace adder {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string_view StopMatcher::push(std::string_view text) {
  out_.clear();
  if (matched_) return out_;
  held_ += text;
  size_t keep_from = held_.size();
  // The match that ends first wins, the longest one among those that end together, so that the
  // result does not depend on where the text was cut into pieces.
  size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (!matched_ || end < first_end || (end == first_end && at < keep_from)) keep_from = at;
    first_end = std::min(first_end, end);
    matched_ = true;
  }
  if (!matched_) {
    // The longest tail that is a proper beginning of a stop string waits for more text.
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > held_.size() - keep_from; --n) {
        if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) {
          keep_from = held_.size() - n;
          break;
        }
      }
    }
  }
  out_.assign(held_, 0, keep_from);
  held_.erase(0, matched_ ? held_.size() : keep_from);
  return out_;
}

std::string_view StopMatcher::finish() {
  out_.clear();
  if (!matched_) out_.swap(held_);
  held_.clear();
  return out_;
}

}  // namespace adder
