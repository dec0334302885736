// The arithmetic of one row of the recurrence, in one place so that every kernel with it gives the
// same bits.
#pragma once

#include "backends/cuda/ssd/ssd_vectors.cuh"

namespace adder::ADDER_CUDA_NS {

// S = decay S + scaled B for four states of an element, of which kLanes neighbouring lanes have
// four each; returns C . S over all of them.
template <int kLanes>
__device__ __forceinline__ float ssd_advance(float4& S, float decay, float scaled, const float4& B,
                                             const float4& C) {
  S.x = fmaf(decay, S.x, scaled * B.x);
  S.y = fmaf(decay, S.y, scaled * B.y);
  S.z = fmaf(decay, S.z, scaled * B.z);
  S.w = fmaf(decay, S.w, scaled * B.w);
  float y = fmaf(C.x, S.x, fmaf(C.y, S.y, fmaf(C.z, S.z, C.w * S.w)));
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) y += __shfl_xor_sync(kFullMask, y, lanes);
  return y;
}

}  // namespace adder::ADDER_CUDA_NS
