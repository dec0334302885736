// The Mamba-2 recurrence, state space duality (arXiv 2405.21060, section 6; mamba_ssm:
// mamba_chunk_scan_combined, and selective_state_update for one token). One operation serves both.
#pragma once

#include <limits>

#include "core/tensor.h"
#include "kernels/batch.h"

namespace adder {

// A backend may work in chunks, but a chunk starts at a multiple of this many rows from the start
// of the sequence's piece. Pieces cut at multiples of it give the same bits however they are cut.
inline constexpr int64_t kSsdChunkAlign = 64;

// g = h / (n_heads / n_groups);  S is ssm_state[slot of the sequence]
// dt'        = clamp(softplus(dt[t, h] + dt_bias[h]), dt_min, dt_max)    (softplus if dt_softplus)
// S[h, p, n] = exp2(dt' * A_log2e[h]) * S[h, p, n] + dt' * x[t, h, p] * B[t, g, n]
// y          = sum_n C[t, g, n] * S[h, p, n] + D[h, p] * x[t, h, p]
// out        = z ? y * silu(z[t, h, p]) : y
struct SsdScanArgs {
  Tensor x;        // (n_tokens, n_heads, headdim) f32
  Tensor dt;       // (n_tokens, n_heads) f32
  Tensor A_log2e;  // (n_heads) f32: A * log2(e) with A = -exp(A_log) <= 0
  Tensor B, C;     // (n_tokens, n_groups, d_state) f32
  Tensor D;        // (n_heads) or (n_heads, headdim) f32; optional: 0
  Tensor z;        // (n_tokens, n_heads, headdim) f32; optional
  Tensor dt_bias;  // (n_heads) f32; optional: 0
  bool dt_softplus = true;
  float dt_min = 0.0f;
  float dt_max = std::numeric_limits<float>::infinity();
  Tensor ssm_state;  // (slots, n_heads, headdim, d_state) f32, in and out
  Tensor out;        // (n_tokens, n_heads, headdim) f32; does not overlap the inputs
  PackedBatch batch;
};

}  // namespace adder
