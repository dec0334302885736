// The gated norm of one group of one row by a block, for the kernels that have it.
#pragma once

#include "backends/cuda/math.cuh"
#include "kernels/rms_norm.h"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kNormThreads = 256;  // of a block, always: they decide the order of the sum

struct NormShared {
  float partial[kNormThreads / kWarpSize];
};

struct GatedRmsNormParams {
  const float *x, *z, *weight;
  float* out;
  int64_t x_stride, z_stride, out_stride, width;  // of a group
  float eps;
  bool norm_before_gate;
};

inline GatedRmsNormParams gated_rms_norm_params(const GatedRmsNormArgs& a) {
  return {a.x.ptr<const float>(), a.z.ptr<const float>(), a.weight.ptr<const float>(),
          a.out.ptr<float>(),     a.x.stride[0],          a.z.stride[0],
          a.out.stride[0],        a.x.dim(1) / a.groups,  a.eps,
          a.norm_before_gate};
}

__device__ __forceinline__ void gated_rms_norm_group(const GatedRmsNormParams& p, int64_t row,
                                                     int64_t group, NormShared& shared) {
  const int64_t begin = group * p.width;
  const float* x = p.x + row * p.x_stride + begin;
  const float* z = p.z + row * p.z_stride + begin;
  const float* weight = p.weight + begin;
  float* out = p.out + row * p.out_stride + begin;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < p.width; j += kNormThreads) {
    const float v = p.norm_before_gate ? x[j] : x[j] * silu(z[j]);
    sum = fmaf(v, v, sum);
  }
  sum = block_sum(sum, shared.partial);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.width) + p.eps);
  for (int64_t j = threadIdx.x; j < p.width; j += kNormThreads) {
    const float gate = silu(z[j]);
    out[j] =
        p.norm_before_gate ? weight[j] * (x[j] * scale) * gate : weight[j] * (x[j] * gate * scale);
  }
}

}  // namespace adder::ADDER_CUDA_NS
