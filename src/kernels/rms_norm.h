// RMS normalisation, plain and gated (arXiv 1910.07467; mamba_ssm.ops.triton.layer_norm and
// layernorm_gated: rmsnorm_fn).
#pragma once

#include "core/tensor.h"

namespace adder {

// With residual:  residual += x, and v = residual;  without: v = x.
// out = weight * v / sqrt(mean(v^2) + eps), the mean over the last axis.
struct RmsNormArgs {
  Tensor x;         // (rows, dim) f32
  Tensor residual;  // (rows, dim) f32, in and out; optional
  Tensor weight;    // (dim) f32; optional: 1
  float eps = 1e-5f;
  Tensor out;  // (rows, dim) f32; may be x itself
};

// norm_before_gate = false:  v = x * silu(z);  out = weight * v / sqrt(mean_group(v^2) + eps)
// norm_before_gate = true:   out = weight * x / sqrt(mean_group(x^2) + eps) * silu(z)
// A group is dim / groups neighbouring elements; the mean is taken within the group.
struct GatedRmsNormArgs {
  Tensor x;       // (rows, dim) f32
  Tensor z;       // (rows, dim) f32
  Tensor weight;  // (dim) f32
  float eps = 1e-5f;
  int64_t groups = 1;  // divides dim
  bool norm_before_gate = false;
  Tensor out;  // (rows, dim) f32; may be x itself
};

}  // namespace adder
