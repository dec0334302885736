// Layer and RMS normalisation on arrays of any number of axes (state-spaces/mamba:
// mamba_ssm.ops.triton.layer_norm and layernorm_gated, forward).
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// All along the last axis, of size dim, in float32:
// v         = x * rowscale + x1 + residual;  residual_out = v;  without norm_before_gate: v *=
// silu(z) norm      = (v - mean_group(v)) / sqrt(var_group(v) + eps), or with rms v /
// sqrt(mean_group(v^2) + eps) out       = norm * weight + bias;  out1 the same with weight1, bias1
//             and with z and norm_before_gate times silu(z)
// A group is group_size neighbouring elements.
struct NormArgs {
  ArrayView x;         // (..., dim) float32, float16, bfloat16 or float64, as all
  ArrayView weight;    // (dim)
  ArrayView bias;      // (dim); optional: 0
  ArrayView residual;  // as x; optional: 0
  ArrayView x1;        // as x; optional: 0
  ArrayView rowscale;  // (...): the shape of x without its last axis; optional: 1
  ArrayView weight1;   // (dim); optional, together with out1
  ArrayView bias1;     // (dim); optional: 0
  ArrayView z;         // as x; optional: no gate
  float eps = 1e-6f;
  int64_t group_size = 0;  // divides dim; 0: dim
  bool norm_before_gate = true;
  bool rms = false;
  ArrayView out;           // as x; overlaps no operand, as the other two
  ArrayView out1;          // as x; optional
  ArrayView residual_out;  // as x; optional
};

// op: the name that errors give.
void norm(std::string_view op, const NormArgs& args);

}  // namespace adder::ops
