// Which operands an operation has, and what it does with each.
#pragma once

#include <vector>

#include "ops/array_view.h"
#include "ops/causal_conv1d.h"
#include "ops/mamba_chunk_scan.h"
#include "ops/mamba_inner.h"
#include "ops/norm.h"
#include "ops/selective_scan.h"
#include "ops/selective_state_update.h"

namespace adder::ops {

struct OperandList {
  std::vector<ArrayView*> read;
  std::vector<ArrayView*> index;    // integers that say where something lies
  std::vector<ArrayView*> updated;  // written, and perhaps also read; they may share memory with
                                    // what is read
  std::vector<ArrayView*> made;     // written, new memory
};

inline OperandList operands_of(SelectiveScanFnArgs& a) {
  return {{&a.u, &a.delta, &a.A, &a.B, &a.C, &a.D, &a.z, &a.delta_bias, &a.initial_state},
          {},
          {},
          {&a.out, &a.last_state}};
}

inline OperandList operands_of(SelectiveStateUpdateArgs& a) {
  return {{&a.x, &a.dt, &a.A, &a.B, &a.C, &a.D, &a.z, &a.dt_bias},
          {&a.state_batch_indices},
          {&a.state},
          {&a.out}};
}

inline OperandList operands_of(MambaChunkScanArgs& a) {
  return {{&a.x, &a.dt, &a.A, &a.B, &a.C, &a.D, &a.z, &a.dt_bias, &a.initial_states},
          {&a.seq_idx, &a.cu_seqlens},
          {},
          {&a.out, &a.final_states, &a.varlen_states}};
}

inline OperandList operands_of(CausalConv1dFnArgs& a) {
  return {{&a.x, &a.weight, &a.bias, &a.initial_states}, {&a.seq_idx}, {&a.final_states}, {&a.out}};
}

inline OperandList operands_of(CausalConv1dUpdateArgs& a) {
  return {{&a.x, &a.weight, &a.bias},
          {&a.cache_seqlens, &a.conv_state_indices},
          {&a.conv_state},
          {&a.out}};
}

inline OperandList operands_of(CausalConv1dVarlenStatesArgs& a) {
  return {{&a.x}, {&a.cu_seqlens}, {}, {&a.states}};
}

inline OperandList operands_of(NormArgs& a) {
  return {{&a.x, &a.weight, &a.bias, &a.residual, &a.x1, &a.rowscale, &a.weight1, &a.bias1, &a.z},
          {},
          {},
          {&a.out, &a.out1, &a.residual_out}};
}

inline OperandList operands_of(MambaInnerArgs& a) {
  return {{&a.xz, &a.conv1d_weight, &a.conv1d_bias, &a.x_proj_weight, &a.delta_proj_weight,
           &a.out_proj_weight, &a.out_proj_bias, &a.A, &a.B, &a.C, &a.D, &a.delta_bias,
           &a.B_proj_bias, &a.C_proj_bias, &a.b_rms_weight, &a.c_rms_weight, &a.dt_rms_weight},
          {},
          {},
          {&a.out}};
}

inline OperandList operands_of(MambaSplitConv1dScanArgs& a) {
  return {{&a.zxbcdt, &a.conv1d_weight, &a.conv1d_bias, &a.dt_bias, &a.A, &a.D, &a.initial_states,
           &a.rmsnorm_weight, &a.outproj_weight, &a.outproj_bias},
          {&a.seq_idx},
          {},
          {&a.out, &a.final_states}};
}

}  // namespace adder::ops
