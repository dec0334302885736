// A linear layer on a user's arrays (torch.nn.functional.linear), for the fused blocks.
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// out[b, t, n] = bias[n] + sum_k x[b, t, k] * weight[n, k], in float32
struct LinearArgs {
  ArrayView x;       // (batch, rows, in) float32, float16, bfloat16 or float64, as all
  ArrayView weight;  // (out, in)
  ArrayView bias;    // (out); optional: 0
  ArrayView out;     // (batch, rows, out); overlaps no operand
};

// The caller has checked shapes and dtypes.
void linear(const LinearArgs& args);

}  // namespace adder::ops
