// The Mamba-2 scan over whole sequences, on the reference's layouts (state-spaces/mamba:
// mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined, forward).
#pragma once

#include <limits>
#include <string_view>

#include "ops/array_view.h"

namespace adder::ops {

// g = h / (nheads / ngroups);  S[h, :, :] starts every sequence as its initial state or 0
// dt'        = clamp(softplus(dt[b, t, h] + dt_bias[h]), dt_min, dt_max)     (softplus if
// dt_softplus) S[h, p, n] = exp(dt' * A[h]) * S[h, p, n] + dt' * x[b, t, h, p] * B[b, t, g, n] y =
// sum_n C[b, t, g, n] * S[h, p, n] + D[h, p] * x[b, t, h, p] out        = z ? y * silu(z[b, t, h,
// p]) : y All arithmetic and states are float32.
//
// Sequences: a row of the batch is one, unless seq_idx or cu_seqlens says where others begin in it
// (ops/segments.h). Padding has out 0 and changes no state.
struct MambaChunkScanArgs {
  ArrayView x;     // (batch, seqlen, nheads, headdim) float32, float16, bfloat16 or float64, as all
  ArrayView dt;    // (batch, seqlen, nheads)
  ArrayView A;     // (nheads)
  ArrayView B, C;  // (batch, seqlen, ngroups, dstate)
  ArrayView D;     // (nheads) or (nheads, headdim); optional: 0
  ArrayView z;     // (batch, seqlen, nheads, headdim); optional
  ArrayView dt_bias;         // (nheads); optional: 0
  ArrayView initial_states;  // (batch, nheads, headdim, dstate), of each row's first sequence; with
                             // cu_seqlens also (sequences, ...), one for each. Optional: 0
  ArrayView seq_idx;         // (batch, seqlen) int32 or int64; optional
  ArrayView cu_seqlens;      // (sequences + 1) int32 or int64; batch is 1. Optional
  bool dt_softplus = false;
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();
  ArrayView out;  // (batch, seqlen, nheads, headdim); overlaps no operand
  ArrayView
      final_states;  // (batch, nheads, headdim, dstate): of each row's last sequence; optional
  ArrayView varlen_states;  // (sequences, nheads, headdim, dstate): of each of cu_seqlens; optional
};

struct ChunkScanSizes {
  int64_t batch, seqlen, nheads, headdim, ngroups, dstate, sequences;
};
// Checks all arguments.
ChunkScanSizes checked_sizes(std::string_view op, const MambaChunkScanArgs& args);

// op: the name that errors give.
void mamba_chunk_scan_combined(const MambaChunkScanArgs& args,
                               std::string_view op = "mamba_chunk_scan_combined");

}  // namespace adder::ops
