// The convolution of one row of one channel, and the state behind it, for the kernels that have
// them.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/math.cuh"
#include "kernels/causal_conv1d.h"

namespace adder::ADDER_CUDA_NS {

struct ConvParams {
  const float *x, *weight, *bias;
  const float* state_in;  // what lies before the first row
  float *state_out, *out;
  DeviceBatch batch;
  int64_t channels, d_conv;
  int64_t x_stride, weight_stride, out_stride, slot_stride, history_stride;
  bool silu;
};

inline ConvParams conv_params(CudaContext& context, const CausalConv1dArgs& a) {
  return {a.x.ptr<const float>(),
          a.weight.ptr<const float>(),
          a.bias ? a.bias.ptr<const float>() : nullptr,
          a.conv_state.ptr<const float>(),
          a.conv_state.ptr<float>(),
          a.out.ptr<float>(),
          context.upload(a.batch),
          a.x.dim(1),
          a.weight.dim(0),
          a.x.stride[0],
          a.weight.stride[0],
          a.out.stride[0],
          a.conv_state.stride[0],
          a.conv_state.stride[1],
          a.silu};
}

// Input i of a sequence, counted from the oldest one in its state.
__device__ __forceinline__ float conv_input(const ConvParams& p, int64_t slot, int64_t begin,
                                            int64_t i, int64_t c) {
  const int64_t history = p.d_conv - 1;
  if (i < history) return p.state_in[slot * p.slot_stride + i * p.history_stride + c];
  return p.x[(begin + i - history) * p.x_stride + c];
}

__device__ __forceinline__ float conv_bias(const ConvParams& p, int64_t c) {
  return p.bias == nullptr ? 0.0f : p.bias[c];
}
__device__ __forceinline__ float conv_activated(const ConvParams& p, float sum) {
  return p.silu ? silu(sum) : sum;
}

// Row t of a sequence.
__device__ __forceinline__ float conv_row(const ConvParams& p, int64_t slot, int64_t begin,
                                          int64_t t, int64_t c) {
  float sum = conv_bias(p, c);
  for (int64_t k = 0; k < p.d_conv; ++k)
    sum = fmaf(p.weight[k * p.weight_stride + c], conv_input(p, slot, begin, t + k, c), sum);
  return conv_activated(p, sum);
}

// The last d_conv - 1 inputs become the state, once nobody needs the old one any more. Row k takes
// row k + length, which has not been overwritten yet.
__device__ __forceinline__ void conv_advance(const ConvParams& p, int64_t slot, int64_t begin,
                                             int64_t length, int64_t c) {
  for (int64_t k = 0; k + 1 < p.d_conv; ++k)
    p.state_out[slot * p.slot_stride + k * p.history_stride + c] =
        conv_input(p, slot, begin, k + length, c);
}

}  // namespace adder::ADDER_CUDA_NS
