// Runs of numbers between the dtypes of users' arrays and float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace adder::ops {

// At any address.
template <typename T>
T load_bits(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

// `count` numbers of kF32, kF16, kBF16 or kF64, `step` bytes apart at any address, to or from
// neighbouring floats. Rounded to nearest even; the bits of core/dtype.h's conversions.
void load_run(const std::byte* from, int64_t step, DType dtype, int64_t count, float* out);
void store_run(const float* in, std::byte* to, int64_t step, DType dtype, int64_t count);

}  // namespace adder::ops
