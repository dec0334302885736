// What SharedSequence and SharedEngine know of a request.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/shared_engine.h"

namespace adder {

// Belongs to the owner's thread, and to the one that drives the engine while `waiting` is set.
struct SharedSequence::Body {
  SharedRequest request;
  ConversationHistory history;  // once done, if it is kept
  Conversation conversation;
  std::unique_ptr<Sequence> sequence;  // null before the first step and once done
  std::vector<std::byte> away;         // its state while it has no slot
  std::string text;                    // that the owner has not taken yet
  GenerationResult result;
  std::optional<Error> error;
  bool waiting = false, not_finite = false;
  std::atomic<bool> done = false, cancelled = false;
};

}  // namespace adder
