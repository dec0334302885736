// A thread has one channel and a stretch of rows of one sequence, with the last inputs in
// registers.
#include "backends/cuda/causal_conv1d.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128;  // channels of a block
constexpr int64_t kRows = 64;  // that a thread walks

struct ConvLaunch {
  ConvParams conv;
  bool advances;  // the state as well: a block has all rows of its sequence
};

// kWidth: d_conv, or 0 for any, whose taps are read again for every row.
template <int kWidth>
__global__ void conv_kernel(ConvLaunch q) {
  const ConvParams& p = q.conv;
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
  if constexpr (kWidth > 0) {
    const float bias = conv_bias(p, c);
    float taps[kWidth], inputs[kWidth];
    for (int k = 0; k < kWidth; ++k) taps[k] = p.weight[k * p.weight_stride + c];
    for (int k = 0; k < kWidth - 1; ++k) inputs[k] = conv_input(p, slot, begin, first + k, c);
    for (int64_t t = first; t < last; ++t) {
      inputs[kWidth - 1] = p.x[(begin + t) * p.x_stride + c];
      float sum = bias;
      for (int k = 0; k < kWidth; ++k) sum = fmaf(taps[k], inputs[k], sum);
      out[t * p.out_stride] = conv_activated(p, sum);
      for (int k = 0; k + 1 < kWidth; ++k) inputs[k] = inputs[k + 1];
    }
  } else {
    for (int64_t t = first; t < last; ++t) out[t * p.out_stride] = conv_row(p, slot, begin, t, c);
  }
  if (q.advances) conv_advance(p, slot, begin, length, c);
}

// The state behind long sequences. A launch of its own: other blocks of the convolution still read
// the old one.
__global__ void conv_state_kernel(ConvParams p) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t sequence = blockIdx.z;
  const int64_t begin = p.batch.seq_start[sequence];
  const int64_t length = p.batch.seq_start[sequence + 1] - begin;
  const int64_t slot = p.batch.state_slot[sequence];
  if (c >= p.channels || slot < 0 || length == 0) return;
  conv_advance(p, slot, begin, length, c);
}

}  // namespace

void causal_conv1d(CudaContext& context, const CausalConv1dArgs& a) {
  const ConvParams params = conv_params(context, a);
  const DeviceBatch& batch = params.batch;
  const int64_t strips = ceil_div(params.channels, kThreads);
  const bool advances = batch.longest <= kRows;
  auto* kernel = params.d_conv == 4   ? conv_kernel<4>
                 : params.d_conv == 3 ? conv_kernel<3>
                 : params.d_conv == 2 ? conv_kernel<2>
                                      : conv_kernel<0>;
  launch(context.device, kernel,
         {blocks(strips, ceil_div(batch.longest, kRows), batch.n_seqs), dim3(kThreads)},
         ConvLaunch{params, advances});
  if (!advances)
    launch(context.device, conv_state_kernel, {blocks(strips, 1, batch.n_seqs), dim3(kThreads)},
           params);
}

}  // namespace adder::ADDER_CUDA_NS
