#include "engine/conversation_history.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/logit_editor.h"

namespace adder {
namespace {

constexpr size_t kCheckpoints = 2;  // states between turns that are kept

}  // namespace

void feed_part(Replay::Part part, GenerationRequest& request) {
  request.max_tokens = 0;
  if (!part.generated) {
    request.prompt = std::move(part.tokens);
    return;
  }
  request.max_tokens = static_cast<int64_t>(part.tokens.size());
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.editor = make_forced_editor(std::move(part.tokens));
}

uint64_t ConversationHistory::bytes() const {
  uint64_t sum = state_ ? state_->bytes() : 0;
  for (const auto& checkpoint : checkpoints_) sum += checkpoint->bytes();
  if (base_ && base_ != state_) sum += base_->bytes();
  return sum;
}

void ConversationHistory::advance(ParkedState state, std::span<const Stretch> stretches) {
  if (state_ && state_ != base_) checkpoints_.push_back(state_);
  if (checkpoints_.size() > kCheckpoints) checkpoints_.erase(checkpoints_.begin());
  state_ = std::make_shared<const ParkedState>(std::move(state));
  stretches_.insert(stretches_.end(), stretches.begin(), stretches.end());
}

Replay ConversationHistory::plan_rollback(int64_t tokens) const {
  ADDER_CHECK(tokens >= 0 && tokens <= known(), "tokens: expected 0 to {}, got {}", known(),
              tokens);
  const int64_t target = length() - tokens;
  Replay replay;
  replay.from = base_;
  int64_t at = base_ ? base_->length() : 0;
  const auto consider = [&](const std::shared_ptr<const ParkedState>& state) {
    if (state->length() > target || state->length() <= at) return;
    replay.from = state;
    at = state->length();
  };
  for (const auto& checkpoint : checkpoints_) consider(checkpoint);
  if (state_) consider(state_);
  int64_t begin = base_ ? base_->length() : 0;
  for (const Stretch& stretch : stretches_) {
    const int64_t end = begin + stretch.tokens;
    const int64_t first = std::max(begin, at), last = std::min(end, target);
    if (first < last) {
      const auto all = state_->tokens.begin();
      const int64_t skip = state_->forgotten;
      replay.parts.push_back({{all + (first - skip), all + (last - skip)}, stretch.generated});
    }
    begin = end;
  }
  return replay;
}

void ConversationHistory::rolled_back(std::shared_ptr<const ParkedState> state) {
  const int64_t length = state ? state->length() : 0;
  std::erase_if(checkpoints_,
                [&](const auto& checkpoint) { return checkpoint->length() > length; });
  int64_t left = length - (base_ ? base_->length() : 0);
  for (Stretch& stretch : stretches_) {
    stretch.tokens = std::min(stretch.tokens, left);
    left -= stretch.tokens;
  }
  std::erase_if(stretches_, [](const Stretch& stretch) { return stretch.tokens == 0; });
  state_ = std::move(state);
}

}  // namespace adder
