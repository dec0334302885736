// The Mamba-1 recurrence (arXiv 2312.00752, section 3; mamba_ssm.ops.selective_scan_interface:
// selective_scan_fn, and selective_state_update for one token). One operation serves both.
#pragma once

#include "core/tensor.h"
#include "kernels/batch.h"

namespace adder {

// g = d / (d_inner / n_groups);  h is ssm_state[slot of the sequence]
// dt      = delta[t, d] + delta_bias[d];  if delta_softplus: dt = softplus(dt)
// h[n, d] = exp2(dt * A_log2e[n, d]) * h[n, d] + dt * B[t, g, n] * u[t, d]
// y       = sum_n C[t, g, n] * h[n, d] + D[d] * u[t, d]
// out     = z ? y * silu(z[t, d]) : y
// softplus(v) = v > 20 ? v : log1p(exp(v));  silu(v) = v / (1 + exp(-v))
struct SelectiveScanArgs {
  Tensor u;           // (n_tokens, d_inner) f32
  Tensor delta;       // (n_tokens, d_inner) f32
  Tensor A_log2e;     // (d_state, d_inner) f32: A * log2(e) with A = -exp(A_log) <= 0
  Tensor B, C;        // (n_tokens, n_groups, d_state) f32
  Tensor D;           // (d_inner) f32; optional: 0
  Tensor z;           // (n_tokens, d_inner) f32; optional
  Tensor delta_bias;  // (d_inner) f32; optional: 0
  bool delta_softplus = true;
  Tensor ssm_state;  // (slots, d_state, d_inner) f32, in and out: transposed against the reference
  Tensor out;        // (n_tokens, d_inner) f32; may be u itself
  PackedBatch batch;
};

}  // namespace adder
