// What a model makes of a given text: logits and log-likelihoods.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace adder {

// Raw float32 logits of the last `last` positions of one fresh sequence: (last, vocab_rows), row by
// row. Throws Error(kBadInput) when last is not in 1 .. tokens.size().
// on_progress gets the tokens done so far after each block; may be empty, and may throw.
std::vector<float> last_logits(Engine& engine, std::span<const int32_t> tokens, int64_t last,
                               const std::function<void(int64_t done)>& on_progress = nullptr);

// What is put in front of a text so that its first token is predicted too: the model's begin- or
// end-of-text token, or its tokenizer's; nothing where there is none.
std::optional<int32_t> text_start(const Engine& engine);

// -log p(tokens[i + 1] | tokens[0 .. i]) for i = 0 .. tokens.size() - 2, natural logarithm, over
// the ids the model can produce. Memory does not grow with the text beyond the result. Throws
// Error(kBadInput) for an id outside the vocabulary, and for a padding id that is to be predicted.
// best: gets the most probable id at each of these places, the lowest among equals. May be null.
std::vector<double> next_token_nll(Engine& engine, std::span<const int32_t> tokens,
                                   const std::function<void(int64_t done)>& on_progress = nullptr,
                                   std::vector<int32_t>* best = nullptr);

// What next_token_nll() is made of, for others that score: the checks of its tokens, and one entry.
void check_predicted(const Engine& engine, std::span<const int32_t> tokens);
// -log p(next) by the (vocab_rows) raw logits of the position before it. Throws where they are not
// finite. best: gets the most probable id, the lowest among equals. May be null.
double token_nll(const Engine& engine, std::span<const float> logits, int32_t next, int32_t* best);

}  // namespace adder
