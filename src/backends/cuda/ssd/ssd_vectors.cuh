// Several neighbouring elements at once where they are aligned for it, one by one where not. The
// values, and so the bits of what is computed with them, are the same.
#pragma once

#include <initializer_list>

#include "backends/cuda/arch.cuh"

namespace adder::ADDER_CUDA_NS {

struct alignas(4) Bf16x2 {
  Bf16 x, y;
};
struct alignas(8) Bf16x4 {
  Bf16 x, y, z, w;
};

__device__ __forceinline__ float4 load4(const float* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const float4*>(from);
  return make_float4(from[0], from[1], from[2], from[3]);
}
__device__ __forceinline__ float4 load4(const Bf16* from, bool aligned) {
  const Bf16x4 v =
      aligned ? *reinterpret_cast<const Bf16x4*>(from) : Bf16x4{from[0], from[1], from[2], from[3]};
  return make_float4(to_float(v.x), to_float(v.y), to_float(v.z), to_float(v.w));
}
__device__ __forceinline__ void store4(float* to, float4 v, bool aligned) {
  if (aligned) {
    *reinterpret_cast<float4*>(to) = v;
    return;
  }
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

__device__ __forceinline__ float2 load2(const float* from, bool aligned) {
  return aligned ? *reinterpret_cast<const float2*>(from) : make_float2(from[0], from[1]);
}
__device__ __forceinline__ float2 load2(const Bf16* from, bool aligned) {
  const Bf16x2 v = aligned ? *reinterpret_cast<const Bf16x2*>(from) : Bf16x2{from[0], from[1]};
  return make_float2(to_float(v.x), to_float(v.y));
}
__device__ __forceinline__ void store2(float* to, float2 v, bool aligned) {
  if (aligned)
    *reinterpret_cast<float2*>(to) = v;
  else
    to[0] = v.x, to[1] = v.y;
}
__device__ __forceinline__ void store2(Bf16* to, float2 v, bool aligned) {
  const Bf16x2 pair{from_float<Bf16>(v.x), from_float<Bf16>(v.y)};
  if (aligned)
    *reinterpret_cast<Bf16x2*>(to) = pair;
  else
    to[0] = pair.x, to[1] = pair.y;
}

// Whether an address, and those at any multiple of the strides (in elements) from it, is a multiple
// of `bytes`.
template <typename T>
bool aligned_to(size_t bytes, const T* address, std::initializer_list<int64_t> strides) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) return false;
  for (const int64_t stride : strides)
    if (static_cast<uint64_t>(stride) * sizeof(T) % bytes != 0) return false;
  return true;
}
template <typename T>
bool aligned16(const T* address, std::initializer_list<int64_t> strides) {
  return aligned_to(16, address, strides);
}

}  // namespace adder::ADDER_CUDA_NS
