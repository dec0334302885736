// Token embedding lookup.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace adder {

// out[t, :] = float(weight[ids[t], :])
struct EmbeddingArgs {
  Tensor weight;                 // (vocab, d_model) F32, F16, BF16 or a block format
  std::span<const int32_t> ids;  // (n_tokens), each in [0, vocab)
  Tensor out;                    // (n_tokens, d_model) f32
};

}  // namespace adder
