// One step of either Mamba's recurrence for a batch of sequences, on the reference's layouts
// (state-spaces/mamba: mamba_ssm.ops.triton.selective_state_update).
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// With heads a channel is (h, p); without, d. g = h / (nheads / ngroups); s = slot of row b.
// dt      = dt[b, h, p] + dt_bias[h, p];  if dt_softplus: dt = softplus(dt)
// state[s, h, p, n] = exp(dt * A[h, p, n]) * state[s, h, p, n] + dt * B[b, g, n] * x[b, h, p]
// y       = sum_n C[b, g, n] * state[s, h, p, n] + D[h, p] * x[b, h, p]
// out     = z ? y * silu(z[b, h, p]) : y
// All arithmetic is float32. dt, A and dt_bias that are expanded over p (stride 0; A over n as
// well), as Mamba-2 passes them, cost one exp for a head.
struct SelectiveStateUpdateArgs {
  ArrayView state;    // (slots, dim, dstate) or (slots, nheads, headdim, dstate), in and out
  ArrayView x, dt;    // (batch, dim) or (batch, nheads, headdim)
  ArrayView A;        // (dim, dstate) or (nheads, headdim, dstate)
  ArrayView B, C;     // (batch, dstate) or (batch, ngroups, dstate)
  ArrayView D;        // (dim) or (nheads, headdim); optional: 0
  ArrayView z;        // as x; optional
  ArrayView dt_bias;  // as D; optional: 0
  bool dt_softplus = false;
  ArrayView state_batch_indices;  // (batch) int32 or int64, distinct; -1: out is 0 and no slot is
                                  // touched. Optional: row b has slot b, and slots is batch
  ArrayView out;                  // as x; overlaps no operand
};

void selective_state_update(const SelectiveStateUpdateArgs& args);

}  // namespace adder::ops
