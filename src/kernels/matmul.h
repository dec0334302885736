// Linear layer on row-major weights as they lie in checkpoints (torch.nn.functional.linear).
#pragma once

#include "core/tensor.h"

namespace adder {

// out[t, n] = bias[n] + sum_k x[t, k] * float(weight[n, k])
// With quantized weights x is first rounded to int8 in blocks of 32 (quantize_activations in
// core/quant.h), so that a block's product is a sum of integers, exact, times two scales:
//   out[t, n] = bias[n] + sum_b d[t, b] * (scale[n, b] * sum_i q[t, b, i] * qw[n, b, i]
//                                          - base[n, b] * sum_i q[t, b, i])
// with b over the blocks, i over their elements, and (qw, scale, base) of QuantBlock. So a NaN or
// Inf in x makes its whole row of out NaN.
// Sums are float32. Their order depends on in_features alone: a row's result has the same bits
// whatever the other rows, their number, or the threads.
struct MatmulArgs {
  Tensor x;       // (rows, in_features) f32
  Tensor weight;  // (out_features, in_features) F32, F16, BF16 or a block format; rows contiguous,
                  // of whole blocks
  Tensor bias;    // (out_features) f32; optional
  Tensor out;     // (rows, out_features) f32; does not overlap x
};

}  // namespace adder
