// A parked conversation and how its tokens came into it: what going on, forking and rolling back
// to the bit need.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/state_cache.h"

namespace adder {

// How a stretch of tokens came into a state: as a prompt, in blocks, or one by one. A state is
// repeated to the bit only in the same way.
struct Stretch {
  int64_t tokens = 0;
  bool generated = false;
};

// What leads from a parked state to another one. Null: from the beginning.
struct Replay {
  struct Part {
    std::vector<int32_t> tokens;
    bool generated = false;
  };
  std::shared_ptr<const ParkedState> from;
  std::vector<Part> parts;
};

// Makes `request` feed the tokens of a part in the way in which they came in.
void feed_part(Replay::Part part, GenerationRequest& request);

// A value: copies share the states, which nobody changes.
class ConversationHistory {
 public:
  ConversationHistory() = default;  // nothing has been processed
  // What is known of it begins with `state`, as with one from a file: there is no way behind it.
  explicit ConversationHistory(std::shared_ptr<const ParkedState> state)
      : base_(state), state_(std::move(state)) {}
  // stretches: how all of the state's tokens came in.
  ConversationHistory(std::shared_ptr<const ParkedState> state, std::vector<Stretch> stretches)
      : state_(std::move(state)), stretches_(std::move(stretches)) {}

  const std::shared_ptr<const ParkedState>& state() const { return state_; }
  const std::vector<Stretch>& stretches() const { return stretches_; }  // oldest first
  int64_t length() const { return state_ ? state_->length() : 0; }
  // How many tokens can be taken back.
  int64_t known() const { return length() - (base_ ? base_->length() : 0); }
  uint64_t bytes() const;  // of the states, in memory

  // `state` follows by these stretches, oldest first.
  void advance(ParkedState state, std::span<const Stretch> stretches);
  // How to get to what this was `tokens` tokens ago. Throws Error(kBadInput) when it has not that
  // many. rolled_back() is the end of it; a null state: nothing is left.
  Replay plan_rollback(int64_t tokens) const;
  void rolled_back(std::shared_ptr<const ParkedState> state);
  // Lets the states go, for one whose file holds everything.
  void clear() { *this = ConversationHistory(); }

 private:
  std::shared_ptr<const ParkedState> base_, state_;
  std::vector<Stretch> stretches_;  // from the base on
  // States between turns that are still in memory, oldest first.
  std::vector<std::shared_ptr<const ParkedState>> checkpoints_;
};

}  // namespace adder
