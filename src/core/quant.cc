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

void dequantize_q8_0(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

void dequantize_q4_0(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

// Q4_K and Q5_K: 64 elements share 32 bytes, the low nibbles first.
// `high` is null, or 32 bytes with bit 2 j of byte i for element i of the j-th 64, bit 2 j + 1 for
// element i + 32.
void dequantize_k(const uint8_t* b, const uint8_t* high, const uint8_t* nibbles, float* out) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = k_scale_and_min(b + 4, j);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(min);
    const uint8_t* from = nibbles + (j / 2) * 32;
    for (int i = 0; i < 32; ++i) {
      int q = (j % 2) ? from[i] >> 4 : from[i] & 15;
      if (high != nullptr) q |= ((high[i] >> j) & 1) << 4;
      out[j * 32 + i] = step * static_cast<float>(q) - base;
    }
  }
}

// 128 elements share 64 bytes of low nibbles and 32 of high bit pairs.
void dequantize_q6_k(const uint8_t* b, float* out) {
  const float d = load_f16(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const int low = b[half * 64 + (quarter % 2) * 32 + at] >> (quarter / 2 * 4) & 15;
    const int high = b[128 + half * 32 + at] >> (quarter * 2) & 3;
    const auto scale = static_cast<int8_t>(b[192 + i / 16]);
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

template <typename Bits, typename Widen>
void widen(const uint8_t* from, std::span<float> out, Widen&& widen_one) {
  for (size_t i = 0; i < out.size(); ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    out[i] = widen_one(bits);
  }
}

}  // namespace

void dequantize_row(DType type, const std::byte* row, std::span<float> out) {
  const auto [elements, bytes] = block_shape(type);
  ADDER_CHECK(static_cast<int64_t>(out.size()) % elements == 0,
              "dequantize: {}: expected a multiple of {} elements, got {}", dtype_name(type),
              elements, out.size());
  const auto* from = reinterpret_cast<const uint8_t*>(row);
  const auto blocks = [&, n = static_cast<size_t>(elements), step = bytes](auto&& one) {
    for (size_t i = 0; i < out.size(); i += n, from += step) one(from, out.data() + i);
  };
  switch (type) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return;
    case DType::kF16:
      return widen<uint16_t>(from, out, f16_to_f32);
    case DType::kBF16:
      return widen<uint16_t>(from, out, bf16_to_f32);
    case DType::kQ8_0:
      return blocks(dequantize_q8_0);
    case DType::kQ4_0:
      return blocks(dequantize_q4_0);
    case DType::kQ4_K:
      return blocks([](const uint8_t* b, float* to) { dequantize_k(b, nullptr, b + 16, to); });
    case DType::kQ5_K:
      return blocks([](const uint8_t* b, float* to) { dequantize_k(b, b + 16, b + 48, to); });
    case DType::kQ6_K:
      return blocks(dequantize_q6_k);
    default:
      bad_input("dequantize: expected a type of weights, got {}", dtype_name(type));
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
