// A thread has one channel and a stretch of rows of one sequence, with the last inputs in
// registers.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128;  // channels of a block
constexpr int64_t kRows = 64;  // that a thread walks

struct ConvParams {
  const float *x, *weight, *bias;
  const float* state_in;  // what lies before the first row
  float *state_out, *out;
  DeviceBatch batch;
  int64_t channels, d_conv;
  int64_t x_stride, weight_stride, out_stride, slot_stride, history_stride;
  bool silu;
};

// Input i of a sequence, counted from the oldest one in its state.
__device__ __forceinline__ float conv_input(const ConvParams& p, int64_t slot, int64_t begin,
                                            int64_t i, int64_t c) {
  const int64_t history = p.d_conv - 1;
  if (i < history) return p.state_in[slot * p.slot_stride + i * p.history_stride + c];
  return p.x[(begin + i - history) * p.x_stride + c];
}

// kWidth: d_conv, or 0 for any, whose taps are read again for every row.
template <int kWidth>
__global__ void conv_kernel(ConvParams p) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t sequence = blockIdx.z;
  const int64_t begin = p.batch.seq_start[sequence];
  const int64_t length = p.batch.seq_start[sequence + 1] - begin;
  const int64_t first = int64_t{blockIdx.y} * kRows;
  const int64_t last = min(first + kRows, length);
  if (c >= p.channels || first >= length) return;
  const int64_t slot = p.batch.state_slot[sequence];
  float* out = p.out + begin * p.out_stride + c;
  if (slot < 0) {
    for (int64_t t = first; t < last; ++t) out[t * p.out_stride] = 0;
    return;
  }
  const float bias = p.bias == nullptr ? 0.0f : p.bias[c];
  if constexpr (kWidth > 0) {
    float taps[kWidth], inputs[kWidth];
    for (int k = 0; k < kWidth; ++k) taps[k] = p.weight[k * p.weight_stride + c];
    for (int k = 0; k < kWidth - 1; ++k) inputs[k] = conv_input(p, slot, begin, first + k, c);
    for (int64_t t = first; t < last; ++t) {
      inputs[kWidth - 1] = p.x[(begin + t) * p.x_stride + c];
      float sum = bias;
      for (int k = 0; k < kWidth; ++k) sum = fmaf(taps[k], inputs[k], sum);
      out[t * p.out_stride] = p.silu ? silu(sum) : sum;
      for (int k = 0; k + 1 < kWidth; ++k) inputs[k] = inputs[k + 1];
    }
  } else {
    for (int64_t t = first; t < last; ++t) {
      float sum = bias;
      for (int64_t k = 0; k < p.d_conv; ++k)
        sum = fmaf(p.weight[k * p.weight_stride + c], conv_input(p, slot, begin, t + k, c), sum);
      out[t * p.out_stride] = p.silu ? silu(sum) : sum;
    }
  }
}

// The last d_conv - 1 inputs become the state. A launch of its own: other blocks of the convolution
// still read the old one. Row k takes row k + length, which has not been overwritten yet.
__global__ void conv_state_kernel(ConvParams p) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t sequence = blockIdx.z;
  const int64_t begin = p.batch.seq_start[sequence];
  const int64_t length = p.batch.seq_start[sequence + 1] - begin;
  const int64_t slot = p.batch.state_slot[sequence];
  if (c >= p.channels || slot < 0 || length == 0) return;
  for (int64_t k = 0; k + 1 < p.d_conv; ++k)
    p.state_out[slot * p.slot_stride + k * p.history_stride + c] =
        conv_input(p, slot, begin, k + length, c);
}

}  // namespace

void causal_conv1d(CudaContext& context, const CausalConv1dArgs& a) {
  const DeviceBatch batch = context.upload(a.batch);
  const int64_t channels = a.x.dim(1), d_conv = a.weight.dim(0);
  const ConvParams params{a.x.ptr<const float>(),
                          a.weight.ptr<const float>(),
                          a.bias ? a.bias.ptr<const float>() : nullptr,
                          a.conv_state.ptr<const float>(),
                          a.conv_state.ptr<float>(),
                          a.out.ptr<float>(),
                          batch,
                          channels,
                          d_conv,
                          a.x.stride[0],
                          a.weight.stride[0],
                          a.out.stride[0],
                          a.conv_state.stride[0],
                          a.conv_state.stride[1],
                          a.silu};
  const int64_t strips = ceil_div(channels, kThreads);
  auto* kernel = d_conv == 4   ? conv_kernel<4>
                 : d_conv == 3 ? conv_kernel<3>
                 : d_conv == 2 ? conv_kernel<2>
                               : conv_kernel<0>;
  launch(context.device, kernel,
         {blocks(strips, ceil_div(batch.longest, kRows), batch.n_seqs), dim3(kThreads)}, params);
  if (batch.longest > 0)
    launch(context.device, conv_state_kernel, {blocks(strips, 1, batch.n_seqs), dim3(kThreads)},
           params);
}

}  // namespace adder::ADDER_CUDA_NS
