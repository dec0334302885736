#include "ops/convert.h"

#include <bit>
#include <cstring>

namespace adder::ops {
namespace {

// Vectors that exist on every processor.
using F4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));
using U4 = uint32_t __attribute__((vector_size(16)));
using H4 = uint16_t __attribute__((vector_size(8)));

template <typename T>
void store_bits(T value, std::byte* address) {
  std::memcpy(address, &value, sizeof value);
}

// f16_to_f32 without a branch, which compilers turn into vectors.
float widen_f16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t value = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : finite;
  return std::bit_cast<float>(value | static_cast<uint32_t>(bits & 0x8000u) << 16);
}

// f32_to_f16, four at a time; compilers do not make vectors of its branches. count: a multiple
// of 4.
void narrow_f16(const float* in, std::byte* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 4) {
    U4 bits;
    std::memcpy(&bits, in + i, sizeof bits);
    const U4 sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    const I4 size = std::bit_cast<I4>(magnitude);
    const U4 rebased = magnitude - 0x38000000u;
    const U4 normal = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
    const U4 subnormal = std::bit_cast<U4>(std::bit_cast<F4>(magnitude) + 0.5f) - 0x3f000000u;
    const U4 nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    U4 half = size < 0x38800000 ? subnormal : normal;
    half = size >= 0x477ff000 ? U4{} + 0x7c00u : half;
    half = size > 0x7f800000 ? nan : half;
    const H4 narrow = __builtin_convertvector(sign | half, H4);
    std::memcpy(to + i * 2, &narrow, sizeof narrow);
  }
}

}  // namespace

void load_run(const std::byte* from, int64_t step, DType dtype, int64_t count, float* out) {
  const auto run = [&](auto zero, auto widen) {
    using T = decltype(zero);
    if (step == static_cast<int64_t>(sizeof(T))) {
      for (int64_t i = 0; i < count; ++i)
        out[i] = widen(load_bits<T>(from + i * static_cast<int64_t>(sizeof(T))));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = widen(load_bits<T>(from + i * step));
    }
  };
  switch (dtype) {
    case DType::kF32:
      return run(float{}, [](float v) { return v; });
    case DType::kF64:
      return run(double{}, [](double v) { return static_cast<float>(v); });
    case DType::kBF16:
      return run(uint16_t{}, bf16_to_f32);
    default:
      return run(uint16_t{}, widen_f16);
  }
}

void store_run(const float* in, std::byte* to, int64_t step, DType dtype, int64_t count) {
  const auto run = [&](auto narrow) {
    using T = decltype(narrow(0.0f));
    if (step == static_cast<int64_t>(sizeof(T))) {
      for (int64_t i = 0; i < count; ++i)
        store_bits<T>(narrow(in[i]), to + i * static_cast<int64_t>(sizeof(T)));
    } else {
      for (int64_t i = 0; i < count; ++i) store_bits<T>(narrow(in[i]), to + i * step);
    }
  };
  if (dtype == DType::kF16 && step == static_cast<int64_t>(sizeof(uint16_t))) {
    const int64_t whole = count - count % 4;
    narrow_f16(in, to, whole);
    in += whole;
    to += whole * step;
    count -= whole;
  }
  switch (dtype) {
    case DType::kF32:
      return run([](float v) { return v; });
    case DType::kF64:
      return run([](float v) { return static_cast<double>(v); });
    case DType::kBF16:
      return run(f32_to_bf16);
    default:
      return run(f32_to_f16);
  }
}

}  // namespace adder::ops
