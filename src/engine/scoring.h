// What a model makes of a given text: logits and log-likelihoods.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace adder {

// Raw float32 logits of the last `last` positions of one fresh sequence: (last, vocab_rows), row by
// row. Throws Error(kBadInput) when last is not in 1 .. tokens.size().
std::vector<float> last_logits(Engine& engine, std::span<const int32_t> tokens, int64_t last);

// -log p(tokens[i + 1] | tokens[0 .. i]) for i = 0 .. tokens.size() - 2, natural logarithm, over
// the ids the model can produce. Memory does not grow with the text beyond the result. Throws
// Error(kBadInput) for an id outside the vocabulary, and for a padding id that is to be predicted.
// on_progress gets the tokens done so far after each block; may be empty.
std::vector<double> next_token_nll(Engine& engine, std::span<const int32_t> tokens,
                                   const std::function<void(int64_t done)>& on_progress = nullptr);

}  // namespace adder
