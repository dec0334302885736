// Linear layer on row-major weights as they lie in checkpoints (torch.nn.functional.linear).
#pragma once

#include "core/tensor.h"

namespace adder {

// out[t, n] = bias[n] + sum_k x[t, k] * float(weight[n, k])
// Sums are float32. Their order depends on in_features alone: a row's result has the same bits
// whatever the other rows, their number, or the threads.
struct MatmulArgs {
  Tensor x;       // (rows, in_features) f32
  Tensor weight;  // (out_features, in_features) F32, F16 or BF16, rows contiguous
  Tensor bias;    // (out_features) f32; optional
  Tensor out;     // (rows, out_features) f32; does not overlap x
};

}  // namespace adder
