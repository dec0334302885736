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
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at != std::string::npos) {
      matched_ = true;
      keep_from = std::min(keep_from, at);
    }
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
