// How the weights of a block format lie in device memory for products: repacked at load into three
// planes, so that a lane of the skinny kernel gets what it needs in aligned loads that are next to
// those of its neighbours. With K = in_features, padded with zeros to whole units and strips:
//   elements  (out, units, 4, 16 bytes): unit u of a row is what lanes i = 0..3 read of it.
//               8 bits (Q8_0, Q5_K, Q6_K): 64 elements; lane i has of block 2 u, then of block
//               2 u + 1, elements 4 i .. 4 i + 3 and 16 + 4 i .. 16 + 4 i + 3
//               4 bits (Q4_0, Q4_K): 128 elements; lane i has of blocks 4 u .. 4 u + 3 four bytes
//               each, of which byte j is element 4 i + j (low) and 16 + 4 i + j (high)
//             Q4_0 is stored as 0..15, and the kernel subtracts 8 times the sum of x.
//   codes     (out, 4 strips, 2 bytes) for each block of 32: Q8_0 and Q4_0 the float16 d; Q4_K and
//             Q5_K the 6-bit scale and minimum; Q6_K its two int8 scales
//   halves    (out, K / 256, 4 bytes), of the formats with blocks of 256: float16 d, and dmin
// Scales stay codes, not float32, because the format's bytes are what a token costs: 18.5 per 32
// elements of Q4_K, not 24. Their products are exact in float32 (11 bits times 8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/matmul/products.h"
#include "core/buffer.h"
#include "core/tensor.h"

namespace adder::ADDER_CUDA_NS {

constexpr bool has_nibbles(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_K;
}
constexpr bool has_halves(DType type) {
  return type != DType::kQ8_0 && type != DType::kQ4_0;
}
constexpr bool has_base(DType type) {
  return type == DType::kQ4_K || type == DType::kQ5_K;
}

// Sizes and places in bytes. `in_features` is whole blocks.
struct PackedBlocks {
  static constexpr int kUnitBytes = 64;

  int64_t units;                            // of a row
  int64_t element_row, code_row, half_row;  // bytes of a row
  size_t codes_at, halves_at, bytes;        // the elements are at 0

  PackedBlocks(DType type, int64_t in_features, int64_t outputs) {
    const int64_t unit = has_nibbles(type) ? 128 : 64;
    units = (in_features + unit - 1) / unit;
    element_row = units * kUnitBytes;
    code_row = chains_of(in_features).strips * kStripGroups * 2;
    half_row = has_halves(type) ? in_features / 256 * 4 : 0;
    const auto rows = static_cast<size_t>(outputs);
    codes_at = rows * static_cast<size_t>(element_row);
    halves_at = codes_at + rows * static_cast<size_t>(code_row);
    bytes = halves_at + rows * static_cast<size_t>(half_row);
  }
};

// One row into its place in each plane; the memory is zero before.
struct PackedRow {
  std::byte* elements;
  std::byte* codes;
  std::byte* halves;
};
void pack_row(DType type, const std::byte* row, int64_t in_features, const PackedRow& to);

// An (out_features, in_features) matrix in host memory whose rows are contiguous, repacked a few
// rows at a time.
Tensor pack_blocks(CudaContext& context, const Tensor& host, Buffer* owner);

}  // namespace adder::ADDER_CUDA_NS
