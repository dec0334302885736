// Elements of users' arrays in kernels: any dtype, any strides.
#pragma once

#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "core/array_view.h"

namespace adder::ADDER_CUDA_NS {

// The dtype is the same for all threads, so its branch costs no divergence.
__device__ __forceinline__ float load_number(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return static_cast<float>(*reinterpret_cast<const double*>(at));
    case DType::kF16:
      return half_to_float(*reinterpret_cast<const uint16_t*>(at));
    case DType::kBF16:
      return bf16_to_f32(*reinterpret_cast<const uint16_t*>(at));
    default:
      return *reinterpret_cast<const float*>(at);
  }
}

// Rounded as on the host, by the same functions.
__device__ __forceinline__ void store_number(float value, std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      *reinterpret_cast<double*>(at) = static_cast<double>(value);
      break;
    case DType::kF16:
      *reinterpret_cast<uint16_t*>(at) = f32_to_f16(value);
      break;
    case DType::kBF16:
      *reinterpret_cast<uint16_t*>(at) = f32_to_bf16(value);
      break;
    default:
      *reinterpret_cast<float*>(at) = value;
  }
}

__device__ __forceinline__ std::byte* element(const ArrayView& a, int64_t i) {
  return a.data + i * a.step(0);
}
__device__ __forceinline__ std::byte* element(const ArrayView& a, int64_t i, int64_t j) {
  return element(a, i) + j * a.step(1);
}
__device__ __forceinline__ std::byte* element(const ArrayView& a, int64_t i, int64_t j, int64_t k) {
  return element(a, i, j) + k * a.step(2);
}

template <typename... Index>
__device__ __forceinline__ float number(const ArrayView& a, Index... index) {
  return load_number(element(a, index...), a.dtype);
}
// 0 where the operand is absent.
template <typename... Index>
__device__ __forceinline__ float number_or_zero(const ArrayView& a, Index... index) {
  return a.given ? number(a, index...) : 0.0f;
}

// One element as it is; units of `unit` bytes, to which both addresses are aligned.
__device__ __forceinline__ void copy_element(const std::byte* from, std::byte* to, int units,
                                             int unit) {
  for (int i = 0; i < units; ++i) {
    if (unit == 8) {
      reinterpret_cast<uint64_t*>(to)[i] = reinterpret_cast<const uint64_t*>(from)[i];
    } else if (unit == 4) {
      reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = reinterpret_cast<const uint16_t*>(from)[i];
    }
  }
}

}  // namespace adder::ADDER_CUDA_NS
