// The Mamba-1 scan over whole sequences, on the reference's layouts (state-spaces/mamba:
// mamba_ssm.ops.selective_scan_interface.selective_scan_fn, forward).
#pragma once

#include <string_view>

#include "ops/array_view.h"

namespace adder::ops {

// g = d / (dim / n_groups);  h[-1] = initial_state or 0
// dt      = delta[b, d, t] + delta_bias[d];  if delta_softplus: dt = softplus(dt)
// h[d, n] = exp(dt * A[d, n]) * h[d, n] + dt * B[b, g, n, t] * u[b, d, t]
// y       = sum_n C[b, g, n, t] * h[d, n] + D[d] * u[b, d, t]
// out     = z ? y * silu(z[b, d, t]) : y;   last_state = h after the last step
// All arithmetic is float32. With complex A, B and C that vary in time hold pairs (real, imaginary)
// along their last axis, (…, 2 * seqlen); constant ones are complex arrays; and
// y = 2 * real(sum_n C * h) + D * u.
struct SelectiveScanFnArgs {
  ArrayView u;           // (batch, dim, seqlen) float32, float16, bfloat16 or float64, as all
  ArrayView delta;       // (batch, dim, seqlen)
  ArrayView A;           // (dim, dstate), or complex64
  ArrayView B, C;        // (dim, dstate), (batch, dstate, seqlen), (batch, groups, dstate, seqlen)
  ArrayView D;           // (dim); optional: 0
  ArrayView z;           // (batch, dim, seqlen); optional
  ArrayView delta_bias;  // (dim); optional: 0
  bool delta_softplus = false;
  ArrayView initial_state;  // (batch, dim, dstate), complex64 if A is; optional: 0
  ArrayView out;            // (batch, dim, seqlen); overlaps no operand
  ArrayView last_state;     // (batch, dim, dstate) float32, complex64 if A is; optional
};

// op: the name that errors give.
void selective_scan_fn(const SelectiveScanFnArgs& args, std::string_view op = "selective_scan_fn");

}  // namespace adder::ops
