// Block formats of quantized weights, byte for byte those of ggml (ggml-common.h), little endian:
//   Q8_0  32 elements, 34 bytes: f16 d, int8 q[32]; w = d * q
//   Q4_0  32 elements, 18 bytes: f16 d, 16 bytes; low nibbles are elements 0..15, high nibbles
//         16..31; w = d * (q - 8)
//   Q4_K  256 elements, 144 bytes: f16 d, f16 dmin, 12 bytes with 8 scales and 8 minima of 6 bits,
//         128 bytes of nibbles; w = d * scale * q - dmin * minimum per 32 elements
//   Q5_K  as Q4_K with a fifth bit per element in 32 more bytes (176 bytes)
//   Q6_K  256 elements, 210 bytes: 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales,
//         f16 d; w = d * scale * (q - 32) per 16 elements
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace adder {

// 32 neighbours of a row as the integers they are: w[i] = scale[i / 16] * q[i] - base. Scale and
// base are exact; the two scales differ in Q6_K alone, base is not 0 in Q4_K and Q5_K alone.
struct QuantBlock {
  std::array<int8_t, 32> q;
  std::array<float, 2> scale;
  float base;
};
// Elements 32 * index and on of a row of a block format. Throws Error(kBadInput) for another type.
QuantBlock unpack_block(DType type, const std::byte* row, int64_t index);

// out[i] = element i of a row of whole blocks, for every stored type that weights may have (F32,
// F16, BF16 and the block formats). `row` needs no alignment. Exact in float32 but for Q4_K's and
// Q5_K's subtraction, which rounds once.
// Throws Error(kBadInput) for another type or a size that is not whole blocks.
void dequantize_row(DType type, const std::byte* row, std::span<float> out);

// The inverse: rounds x to `type` (F32, F16, BF16, Q8_0, Q4_0, Q4_K); x.size() is whole blocks.
// Q8_0 rounds to the nearest multiple of d = f16(max |x| / 127). Q4_0 and Q4_K search for the
// scales (and minima) with the least squared error, weighted by `importance`: a number >= 0 per
// element, or empty for equal weights. A scale that float16 cannot hold is
// its largest value, and elements beyond it saturate. Non-finite values are the caller's to refuse.
// Throws Error(kBadInput) as above, and for importance of another size.
void quantize_row(DType type, std::span<const float> x, std::span<const float> importance,
                  std::byte* row);

// Activations as the products with quantized weights see them: blocks of 32 with one float32 scale
// d = max |x| / 127 and q = round_to_even(x / d), so |q| <= 127. Where d is 0 or subnormal, d and q
// are 0: a rounded subnormal scale could put x / d anywhere. A block that holds a NaN or Inf has
// d = NaN and q = 0. x.size() is whole blocks; q has as many elements, d one per block.
inline constexpr int64_t kActivationBlock = 32;
void quantize_activations(std::span<const float> x, int8_t* q, float* d);

}  // namespace adder
