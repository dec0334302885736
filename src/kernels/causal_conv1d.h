// Depthwise causal convolution over time (Dao-AILab/causal-conv1d: causal_conv1d_fn,
// causal_conv1d_update). One operation serves prefill and decode.
#pragma once

#include "core/tensor.h"
#include "kernels/batch.h"

namespace adder {

// out[t, c] = act(bias[c] + sum_{k < d_conv} weight[k, c] * x[t - (d_conv - 1) + k, c])
// Inputs before the first row of a sequence come from conv_state; taps never cross a sequence
// boundary. Afterwards conv_state holds the last d_conv - 1 inputs, oldest first.
struct CausalConv1dArgs {
  Tensor x;       // (n_tokens, channels) f32
  Tensor weight;  // (d_conv, channels) f32: transposed against the reference's (channels, d_conv)
  Tensor bias;    // (channels) f32; optional
  Tensor conv_state;  // (slots, d_conv - 1, channels) f32, in and out; d_conv >= 2
  bool silu = true;   // act = silu, else identity
  Tensor out;         // (n_tokens, channels) f32; does not overlap x
  PackedBatch batch;
};

}  // namespace adder
