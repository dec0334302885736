// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace adder {

// Filters of one row, applied in this order to the ids below `vocab_limit`:
//   1. repeat_penalty: logits of ids in `recent` are divided by it if positive, else multiplied
//   2. temperature 0: the largest logit wins, the lowest id among equals; nothing else applies
//   3. logits / temperature;  4. top_k largest (0: all);  5. top_p: the smallest set of the most
//      probable ids whose probabilities sum to at least top_p;  6. min_p: ids at least min_p times
//      as probable as the most probable one
//   7. the id where the cumulative probability, most probable first and lowest id first among
//      equals, first exceeds `uniform` times the sum of what is left
struct SampleParams {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  std::span<const int32_t> recent;
  float uniform = 0.0f;  // in [0, 1): the random number, drawn by the caller
};

// Throws Error(kInternal) when a row has no finite largest logit (NaN or Inf: a broken model).
struct SampleArgs {
  Tensor logits;                         // (rows, vocab) f32; left as it is
  int64_t vocab_limit = 0;               // ids from here on are padding and never chosen
  std::span<const SampleParams> params;  // (rows)
  std::span<int32_t> out;                // (rows)
};

}  // namespace adder
