#include "core/quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/quant_blocks.h"

namespace adder {
namespace {

using quant::k_scale_and_min;
using quant::load_f16;

// Q4_K and Q5_K: 64 elements share 32 bytes, the low nibbles first. `high` is null, or 32 bytes of
// which bit j of byte i is the fifth bit of element i of the j-th 32.
QuantBlock unpack_k(const uint8_t* b, const uint8_t* high, const uint8_t* nibbles, int j) {
  QuantBlock block;
  const auto [scale, min] = k_scale_and_min(b + 4, j);
  block.scale.fill(load_f16(b) * static_cast<float>(scale));
  block.base = load_f16(b + 2) * static_cast<float>(min);
  const uint8_t* from = nibbles + (j / 2) * 32;
  for (size_t i = 0; i < 32; ++i) {
    int q = (j % 2) ? from[i] >> 4 : from[i] & 15;
    if (high != nullptr) q |= ((high[i] >> j) & 1) << 4;
    block.q[i] = static_cast<int8_t>(q);
  }
  return block;
}

// Q6_K: 128 elements share 64 bytes of low nibbles and 32 of high bit pairs.
QuantBlock unpack_q6_k(const uint8_t* b, int j) {
  QuantBlock block;
  const float d = load_f16(b + 208);
  for (size_t half = 0; half < 2; ++half) {
    const auto scale = static_cast<int8_t>(b[192 + 2 * static_cast<size_t>(j) + half]);
    block.scale[half] = d * static_cast<float>(scale);
  }
  block.base = 0;
  const uint8_t* nibbles = b + (j / 4) * 64 + (j % 2) * 32;
  const uint8_t* pairs = b + 128 + (j / 4) * 32;
  for (size_t i = 0; i < 32; ++i) {
    const int low = nibbles[i] >> (j % 4 / 2 * 4) & 15, high = pairs[i] >> (j % 4 * 2) & 3;
    block.q[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  return block;
}

template <typename Bits, typename Widen>
void widen(const std::byte* from, std::span<float> out, Widen&& widen_one) {
  for (size_t i = 0; i < out.size(); ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    out[i] = widen_one(bits);
  }
}

}  // namespace

QuantBlock unpack_block(DType type, const std::byte* row, int64_t index) {
  const int64_t parts = block_shape(type).elements / 32;
  const auto* b = reinterpret_cast<const uint8_t*>(row);
  if (parts > 0) b += static_cast<size_t>(index / parts) * block_shape(type).bytes;
  const auto j = static_cast<int>(parts > 0 ? index % parts : 0);
  QuantBlock block;
  switch (type) {
    case DType::kQ8_0:
      block.scale.fill(load_f16(b));
      block.base = 0;
      std::memcpy(block.q.data(), b + 2, 32);
      return block;
    case DType::kQ4_0:
      block.scale.fill(load_f16(b));
      block.base = 0;
      for (size_t i = 0; i < 16; ++i) {
        block.q[i] = static_cast<int8_t>((b[2 + i] & 15) - 8);
        block.q[i + 16] = static_cast<int8_t>((b[2 + i] >> 4) - 8);
      }
      return block;
    case DType::kQ4_K:
      return unpack_k(b, nullptr, b + 16, j);
    case DType::kQ5_K:
      return unpack_k(b, b + 16, b + 48, j);
    case DType::kQ6_K:
      return unpack_q6_k(b, j);
    default:
      bad_input("unpack: expected a block format, got {}", dtype_name(type));
  }
}

void dequantize_row(DType type, const std::byte* row, std::span<float> out) {
  ADDER_CHECK(static_cast<int64_t>(out.size()) % block_shape(type).elements == 0,
              "dequantize: {}: expected a multiple of {} elements, got {}", dtype_name(type),
              block_shape(type).elements, out.size());
  switch (type) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), row, out.size_bytes());
      return;
    case DType::kF16:
      return widen<uint16_t>(row, out, f16_to_f32);
    case DType::kBF16:
      return widen<uint16_t>(row, out, bf16_to_f32);
    default:
      break;
  }
  ADDER_CHECK(is_quantized(type), "dequantize: expected a type of weights, got {}",
              dtype_name(type));
  for (size_t at = 0; at < out.size(); at += 32) {
    const QuantBlock block = unpack_block(type, row, static_cast<int64_t>(at / 32));
    for (size_t i = 0; i < 32; ++i)
      out[at + i] = block.scale[i / 16] * static_cast<float>(block.q[i]) - block.base;
  }
}

void quantize_activations(std::span<const float> x, int8_t* q, float* d) {
  constexpr auto kBlock = static_cast<size_t>(kActivationBlock);
  ADDER_CHECK(x.size() % kBlock == 0,
              "quantize_activations: expected a multiple of {} elements, got {}", kBlock, x.size());
  for (size_t at = 0; at < x.size(); at += kBlock, q += kBlock, ++d) {
    const auto block = x.subspan(at, kBlock);
    float largest = 0;
    bool finite = true;
    for (const float v : block) {
      finite = finite && std::isfinite(v);
      largest = std::max(largest, std::abs(v));
    }
    const float scale = largest / 127.0f;
    const bool usable = finite && scale >= std::numeric_limits<float>::min();
    *d = !finite ? std::numeric_limits<float>::quiet_NaN() : usable ? scale : 0.0f;
    for (size_t i = 0; i < kBlock; ++i)
      q[i] = usable ? static_cast<int8_t>(quant::round_even(block[i] / scale)) : int8_t{0};
  }
}

}  // namespace adder
