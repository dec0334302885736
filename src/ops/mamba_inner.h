// What lies between a mixer's in_proj and its end, on the reference's layouts, forward only
// (state-spaces/mamba: mamba_ssm.ops.selective_scan_interface.mamba_inner_fn and
// mamba_ssm.ops.triton.ssd_combined.mamba_split_conv1d_scan_combined). Everything between the
// operands is kept in float32.
#pragma once

#include <limits>

#include "ops/array_view.h"

namespace adder::ops {

// Mamba-1: (x, z) = xz;  u = silu(conv(x));  (dt, B, C) = x_proj u;  delta = delta_proj dt
// out = out_proj selective_scan(u, delta, A, B, C, D, z, delta_bias) + out_proj_bias
// B and C that are given are left out of x_proj's rows. state: dstate, or 2 * dstate if A is
// complex.
struct MambaInnerArgs {
  ArrayView xz;                 // (batch, 2 * dim, seqlen) float32, float16, bfloat16 or float64
  ArrayView conv1d_weight;      // (dim, 1, width)
  ArrayView conv1d_bias;        // (dim); optional: 0
  ArrayView x_proj_weight;      // (dt_rank + state for each of B and C that is not given, dim)
  ArrayView delta_proj_weight;  // (dim, dt_rank)
  ArrayView out_proj_weight;    // (d_model, dim)
  ArrayView out_proj_bias;      // (d_model); optional: 0
  ArrayView A;                  // (dim, dstate), or complex64
  ArrayView B, C;               // as SelectiveScanFnArgs; optional: from x_proj
  ArrayView D, delta_bias;      // (dim); optional: 0
  ArrayView B_proj_bias, C_proj_bias;  // (state); optional: 0
  bool delta_softplus = true;
  ArrayView b_rms_weight, c_rms_weight;  // (state): RMS norm of B, of C; optional
  ArrayView dt_rms_weight;               // (dim): RMS norm of delta; optional
  float b_c_dt_rms_eps = 1e-6f;
  ArrayView out;  // (batch, seqlen, d_model); overlaps no operand
};
void mamba_inner_fn(const MambaInnerArgs& args);

// Mamba-2: (zx0, z, xBC, dt) = zxbcdt;  (x, B, C) = act(conv(xBC))
// y = mamba_chunk_scan_combined(x, dt, A, B, C, D, dt_bias), with softplus; gated by z, in an RMS
// norm by groups if there is a weight for it;  a gated MLP silu(zx0[0]) * zx0[1] goes in front of
// it if zxbcdt has more columns than the rest needs;  out = outproj y + outproj_bias, or y
struct MambaSplitConv1dScanArgs {
  ArrayView zxbcdt;          // (batch, seqlen, 2 * d_mlp + 2 * dim + 2 * ngroups * dstate + nheads)
                             // float32, float16, bfloat16 or float64; dim = nheads * headdim
  ArrayView conv1d_weight;   // (dim + 2 * ngroups * dstate, width)
  ArrayView conv1d_bias;     // (dim + 2 * ngroups * dstate); optional: 0
  ArrayView dt_bias;         // (nheads); optional: 0
  ArrayView A;               // (nheads)
  ArrayView D;               // (nheads) or (nheads, headdim)
  ArrayView initial_states;  // (batch, nheads, headdim, dstate); optional: 0
  ArrayView seq_idx;         // (batch, seqlen) int32 or int64; optional
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();
  bool silu = true;          // act = silu, else identity
  ArrayView rmsnorm_weight;  // (dim); optional
  float rmsnorm_eps = 1e-6f;
  ArrayView outproj_weight;  // (d_model, d_mlp + dim); optional
  ArrayView outproj_bias;    // (d_model); optional: 0
  int64_t headdim = 0;       // needed if D is (nheads)
  int64_t ngroups = 1;
  bool norm_before_gate = true;
  ArrayView out;           // (batch, seqlen, d_model or d_mlp + dim); overlaps no operand
  ArrayView final_states;  // (batch, nheads, headdim, dstate); optional
};

struct MambaSplitSizes {
  int64_t batch, seqlen, nheads, headdim, ngroups, dstate, d_mlp, d_out;
  int64_t dim() const { return nheads * headdim; }
};
// The sizes that the operands imply, all but `out` and `final_states` checked.
MambaSplitSizes mamba_split_sizes(const MambaSplitConv1dScanArgs& args);
void mamba_split_conv1d_scan_combined(const MambaSplitConv1dScanArgs& args);

}  // namespace adder::ops
