#include "server/logprob_track.h"

#include <iterator>
#include <utility>

namespace adder {

void LogprobTrack::add(SpelledToken token) {
  bytes_ += token.chosen.bytes;
  waiting_.push_back(std::move(token));
}

std::vector<SpelledToken> LogprobTrack::release(std::string_view text) {
  exact_ = exact_ && std::string_view(bytes_).substr(shown_).starts_with(text);
  if (!exact_) return std::exchange(waiting_, {});
  shown_ += text.size();
  size_t count = 0;
  while (count < waiting_.size() && next_start_ < shown_) {
    next_start_ += waiting_[count++].chosen.bytes.size();
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<SpelledToken> released(std::move_iterator(waiting_.begin()), std::move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return released;
}

std::vector<SpelledToken> LogprobTrack::finish(FinishReason reason) {
  std::vector<SpelledToken> rest = std::exchange(waiting_, {});
  if (reason == FinishReason::kStop && exact_) rest.clear();
  return rest;
}

}  // namespace adder
