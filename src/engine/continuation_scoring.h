// Log-likelihoods of many short texts: packed into common steps, and contexts that several share
// are read once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace adder {

struct ContinuationRequest {
  std::vector<int32_t> tokens;  // context, then continuation
  int64_t context = 1;          // tokens of the context, at least 1 and less than all
};

// One entry for each token of the continuation.
struct ContinuationScore {
  std::vector<double> nll;    // -log p(token | all before it)
  std::vector<int32_t> best;  // the most probable id in its place, the lowest among equals
};

// The entries of next_token_nll() that belong to the continuations, to the bit. Requests with one
// context share its steps when they follow each other, so order them so.
// pause: called between steps, when at most one slot is held; may throw, and others may use the
// engine meanwhile. Throws Error(kBadInput) for a request that next_token_nll() would refuse.
std::vector<ContinuationScore> score_continuations(Engine& engine,
                                                   std::span<const ContinuationRequest> requests,
                                                   const std::function<void()>& pause = nullptr);

}  // namespace adder
