// Depthwise causal convolution on the reference's layouts (Dao-AILab/causal-conv1d:
// causal_conv1d_fn, causal_conv1d_update, causal_conv1d_varlen_states; forward).
#pragma once

#include "ops/array_view.h"

namespace adder::ops {

// out[b, d, t] = act(bias[d] + sum_{k < width} weight[d, k] * x[b, d, t - (width - 1) + k])
// Inputs before the start of a row's first sequence come from initial_states, before the start of
// any other they are 0. Arithmetic is float32.
struct CausalConv1dFnArgs {
  ArrayView x;               // (batch, dim, seqlen) float32, float16, bfloat16 or float64, as all
  ArrayView weight;          // (dim, width), width >= 1
  ArrayView bias;            // (dim); optional: 0
  ArrayView seq_idx;         // (batch, seqlen) int32 or int64; optional: one sequence for each row.
                             // A sequence starts where it changes; negative: padding, out is 0
  ArrayView initial_states;  // (batch, dim, width - 1), oldest first; optional: 0
  bool silu = false;         // act = silu, else identity
  ArrayView out;             // (batch, dim, seqlen); overlaps no operand
  ArrayView final_states;    // (batch, dim, width - 1): the last inputs of the row's last sequence,
                             // behind those of its initial state (or 0) if it is short; optional
};
void causal_conv1d_fn(const CausalConv1dFnArgs& args);

// The same for inputs that follow those in conv_state, which then takes them in.
struct CausalConv1dUpdateArgs {
  ArrayView x;           // (batch, dim) or (batch, dim, seqlen)
  ArrayView conv_state;  // (slots, dim, state_len), state_len >= width - 1, in and out: the last
                         // inputs, oldest first; copied exactly if its dtype is that of x
  ArrayView weight;      // (dim, width), width >= 1
  ArrayView bias;        // (dim); optional: 0
  bool silu = false;
  ArrayView cache_seqlens;  // (batch) int32 or int64, >= 0: conv_state is a circular buffer, and x
                            // goes to positions (cache_seqlens + t) % state_len. Optional
  ArrayView conv_state_indices;  // (batch) int32 or int64, distinct; -1: out is 0 and no slot is
                                 // touched. Optional: row b has slot b, and slots is batch
  ArrayView out;                 // as x; overlaps no operand
};
void causal_conv1d_update(const CausalConv1dUpdateArgs& args);

// states[i, :, j] = x[cu_seqlens[i + 1] - state_len + j, :] where that is in sequence i, else 0
struct CausalConv1dVarlenStatesArgs {
  ArrayView x;           // (total, dim), any dtype
  ArrayView cu_seqlens;  // (sequences + 1) int32 or int64, from 0, never falling
  ArrayView states;      // (sequences, dim, state_len), the dtype of x
};
void causal_conv1d_varlen_states(const CausalConv1dVarlenStatesArgs& args);

}  // namespace adder::ops
