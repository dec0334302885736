// Element-wise functions and reductions that the kernels share.
#pragma once

#include "backends/cuda/arch.cuh"

namespace adder::ADDER_CUDA_NS {

inline constexpr float kLog2e = 1.44269504f;

// v / (1 + exp(-v)); 0 for v far below, v far above, never Inf / Inf.
__device__ __forceinline__ float silu(float v) {
  return v / (1.0f + expf(-v));
}

// log1p(exp(v)), accurate relative to its own size, and v from 20 on (torch's threshold).
__device__ __forceinline__ float softplus(float v) {
  return v > 20.0f ? v : log1pf(expf(v));
}

__device__ __forceinline__ float warp_sum(float v) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) v += __shfl_xor_sync(kFullMask, v, lanes);
  return v;
}

// The sum over a block of whole warps (at most 32), the same bits in every thread. `scratch` is
// shared memory for one float per warp; it may be used again after the next barrier.
__device__ __forceinline__ float block_sum(float v, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x),
            warps = static_cast<int>(blockDim.x) / kWarpSize;
  v = warp_sum(v);
  if (thread % kWarpSize == 0) scratch[thread / kWarpSize] = v;
  __syncthreads();
  v = thread % kWarpSize < warps ? scratch[thread % kWarpSize] : 0.0f;
  return warp_sum(v);
}

}  // namespace adder::ADDER_CUDA_NS
