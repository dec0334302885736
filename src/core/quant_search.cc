// Rounding rows to the block formats of core/quant.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/quant.h"
#include "core/quant_blocks.h"

namespace adder {
namespace {

using quant::round_even;

constexpr int kSub = 32;  // elements that share a scale, in all three formats
constexpr float kLargestHalf = 65504.0f;

void store_bits(uint16_t bits, uint8_t* at) {
  std::memcpy(at, &bits, sizeof bits);
}
void store_f16(float v, uint8_t* at) {
  store_bits(f32_to_f16(v), at);
}

// The nearest half that is finite, as float32.
float to_half(float v) {
  return f16_to_f32(f32_to_f16(std::clamp(v, -kLargestHalf, kLargestHalf)));
}

float inverse(float v) {
  return v != 0 ? 1.0f / v : 0.0f;
}

float largest_magnitude(const float* x) {
  float largest = 0;
  for (int i = 0; i < kSub; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

void quantize_q8_0(const float* x, uint8_t* b) {
  const float largest = largest_magnitude(x);
  float d = to_half(largest / 127.0f);
  // Subnormal halves are coarse: one that was rounded down would clip the largest element.
  if (largest > 127.5f * d && d < kLargestHalf) {
    d = f16_to_f32(static_cast<uint16_t>(f32_to_f16(d) + 1));
  }
  store_f16(d, b);
  for (int i = 0; i < kSub; ++i) {
    const float q = d != 0 ? std::clamp(x[i] / d, -127.0f, 127.0f) : 0.0f;
    b[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(round_even(q)));
  }
}

// ---- Q4_0 -------------------------------------------------------------------------------------

// Weighted squared error of x against d * q with the best q of -8..7, and the sums of the weighted
// least squares fit of d to that q.
struct ScaleFit {
  float error, xq, qq;
};
ScaleFit fit_scale(const float* x, const float* w, float d) {
  const float inv = inverse(d);
  ScaleFit f{};
  for (int i = 0; i < kSub; ++i) {
    const float q = round_even(std::clamp(x[i] * inv, -8.0f, 7.0f));
    const float e = x[i] - d * q;
    f.error += w[i] * e * e;
    f.xq += w[i] * x[i] * q;
    f.qq += w[i] * q * q;
  }
  return f;
}

// The half d with the least error found: starts put the largest element near -8 or near 7, and
// each start is improved by turns of rounding and fitting.
float search_scale(const float* x, const float* w) {
  const float* end = x + kSub;
  const float largest =
      *std::max_element(x, end, [](float a, float b) { return std::abs(a) < std::abs(b); });
  float best = 0, best_error = fit_scale(x, w, 0).error;
  for (const float level : {-8.7f, -8.2f, -7.7f, -7.2f, 6.7f, 7.2f, 7.7f}) {
    float d = to_half(largest / level);
    for (int turn = 0; turn < 3; ++turn) {
      const ScaleFit f = fit_scale(x, w, d);
      if (f.error < best_error) best_error = f.error, best = d;
      if (f.qq <= 0) break;
      const float next = to_half(f.xq / f.qq);
      if (next == d) break;
      d = next;
    }
  }
  return best;
}

void quantize_q4_0(const float* x, const float* w, uint8_t* b) {
  const float d = search_scale(x, w), inv = inverse(d);
  store_f16(d, b);
  std::array<uint8_t, kSub> q;
  for (size_t i = 0; i < kSub; ++i)
    q[i] = static_cast<uint8_t>(round_even(std::clamp(x[i] * inv, -8.0f, 7.0f)) + 8.0f);
  for (size_t i = 0; i < 16; ++i) b[2 + i] = static_cast<uint8_t>(q[i] | q[i + 16] << 4);
}

// ---- Q4_K -------------------------------------------------------------------------------------

// x ~ step * q - base with q of 0..15 and base >= 0.
struct Affine {
  float step, base;
};

float rounded_level(float x, float inv, float base) {
  return round_even(std::clamp((x + base) * inv, 0.0f, 15.0f));
}

float error_of(const float* x, const float* w, Affine a) {
  const float inv = inverse(a.step);
  float error = 0;
  for (int i = 0; i < kSub; ++i) {
    const float e = a.step * rounded_level(x[i], inv, a.base) - a.base - x[i];
    error += w[i] * e * e;
  }
  return error;
}

// The weighted least squares fit to the levels that `a` rounds x to, with base >= 0.
Affine refit(const float* x, const float* w, Affine a) {
  const float inv = inverse(a.step);
  float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
  for (int i = 0; i < kSub; ++i) {
    const float q = rounded_level(x[i], inv, a.base);
    sw += w[i];
    sq += w[i] * q;
    sqq += w[i] * q * q;
    sx += w[i] * x[i];
    sxq += w[i] * x[i] * q;
  }
  const float determinant = sw * sqq - sq * sq;
  if (determinant > 0) {
    const Affine fit{(sw * sxq - sx * sq) / determinant, (sq * sxq - sqq * sx) / determinant};
    if (fit.base >= 0 && fit.step > 0) return fit;
  }
  return sqq > 0 ? Affine{std::max(0.0f, sxq / sqq), 0} : a;
}

Affine search_affine(const float* x, const float* w) {
  const auto [low, high] = std::minmax_element(x, x + kSub);
  const float base = std::max(0.0f, -*low), range = *high + base;
  Affine best{0, base};
  if (!(range > 0)) return best;  // one negative value, or zeros
  float best_error = error_of(x, w, best);
  for (int i = 0; i <= 4; ++i) {
    Affine a{range / (13.6f + 0.5f * static_cast<float>(i)), base};
    for (int turn = 0; turn < 4; ++turn) {
      const float error = error_of(x, w, a);
      if (error < best_error) best_error = error, best = a;
      a = refit(x, w, a);
    }
  }
  return best;
}

void store_scale_and_min(uint8_t* b, int j, int scale, int min) {
  if (j < 4) {
    b[j] = static_cast<uint8_t>(b[j] | scale);
    b[j + 4] = static_cast<uint8_t>(b[j + 4] | min);
  } else {
    b[j + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
    b[j - 4] = static_cast<uint8_t>(b[j - 4] | (scale >> 4) << 6);
    b[j] = static_cast<uint8_t>(b[j] | (min >> 4) << 6);
  }
}

void quantize_q4_k(const float* x, const float* w, uint8_t* b) {
  constexpr int kParts = 8;
  std::array<Affine, kParts> ideal;
  float largest_step = 0, largest_base = 0;
  for (int j = 0; j < kParts; ++j) {
    Affine& a = ideal[static_cast<size_t>(j)] = search_affine(x + j * kSub, w + j * kSub);
    largest_step = std::max(largest_step, a.step);
    largest_base = std::max(largest_base, a.base);
  }
  const float d = to_half(largest_step / 63.0f), dmin = to_half(largest_base / 63.0f);
  std::fill_n(b, 144, uint8_t{0});
  store_f16(d, b);
  store_f16(dmin, b + 2);
  for (int j = 0; j < kParts; ++j) {
    const float *part = x + j * kSub, *weights = w + j * kSub;
    const Affine& a = ideal[static_cast<size_t>(j)];
    const auto scale = static_cast<int>(round_even(std::min(63.0f, a.step * inverse(d))));
    const auto min = static_cast<int>(round_even(std::min(63.0f, a.base * inverse(dmin))));
    // Rounded to 6 bits each on its own they need not be the best pair: try the neighbours.
    float best_error = std::numeric_limits<float>::infinity();
    int best_scale = scale, best_min = min;
    for (int s = std::max(0, scale - 1); s <= std::min(63, scale + 1); ++s) {
      for (int m = std::max(0, min - 2); m <= std::min(63, min + 2); ++m) {
        const float error =
            error_of(part, weights, {d * static_cast<float>(s), dmin * static_cast<float>(m)});
        if (error < best_error) best_error = error, best_scale = s, best_min = m;
      }
    }
    store_scale_and_min(b + 4, j, best_scale, best_min);
    const float inv = inverse(d * static_cast<float>(best_scale));
    const float base = dmin * static_cast<float>(best_min);
    uint8_t* to = b + 16 + (j / 2) * 32;
    for (int i = 0; i < kSub; ++i) {
      const auto q = static_cast<int>(rounded_level(part[i], inv, base));
      to[i] = static_cast<uint8_t>(to[i] | q << (j % 2 * 4));
    }
  }
}

// The weights of a block, scaled so that no sum of the fits can overflow or vanish. Without
// importance, or where no element matters, all matter alike: weighting by an element's size, as
// ggml does, gave the higher perplexity on the demo model.
void block_weights(std::span<const float> importance, std::span<float> w) {
  std::fill(w.begin(), w.end(), 1.0f);
  if (importance.empty()) return;
  const float largest = *std::max_element(importance.begin(), importance.end());
  if (largest <= 0) return;
  for (size_t i = 0; i < w.size(); ++i) w[i] = importance[i] / largest;
}

}  // namespace

void quantize_row(DType type, std::span<const float> x, std::span<const float> importance,
                  std::byte* row) {
  const auto [elements, bytes] = block_shape(type);
  const auto n = static_cast<size_t>(elements);
  ADDER_CHECK(x.size() % n == 0, "quantize: {}: expected a multiple of {} elements, got {}",
              dtype_name(type), n, x.size());
  ADDER_CHECK(importance.empty() || importance.size() == x.size(),
              "quantize: importance: expected {} elements, got {}", x.size(), importance.size());
  auto* to = reinterpret_cast<uint8_t*>(row);
  const auto blocks = [&, step = bytes](auto&& one) {
    for (size_t at = 0; at < x.size(); at += n, to += step) one(x.data() + at, to);
  };
  // Beyond `limit` the format saturates; clipped there, no square of the search overflows.
  const auto searched = [&](float limit, auto&& one) {
    std::array<float, 256> clipped, w;
    blocks([&](const float* block, uint8_t* b) {
      for (size_t i = 0; i < n; ++i) clipped[i] = std::clamp(block[i], -limit, limit);
      block_weights(importance.empty()
                        ? importance
                        : importance.subspan(static_cast<size_t>(block - x.data()), n),
                    {w.data(), n});
      one(clipped.data(), w.data(), b);
    });
  };
  switch (type) {
    case DType::kF32:
      if (!x.empty()) std::memcpy(to, x.data(), x.size_bytes());
      return;
    case DType::kF16:
      return blocks([](const float* v, uint8_t* b) { store_bits(f32_to_f16(*v), b); });
    case DType::kBF16:
      return blocks([](const float* v, uint8_t* b) { store_bits(f32_to_bf16(*v), b); });
    case DType::kQ8_0:
      return blocks(quantize_q8_0);
    case DType::kQ4_0:
      return searched(8 * kLargestHalf, quantize_q4_0);
    case DType::kQ4_K:
      return searched(63 * 15 * kLargestHalf, quantize_q4_k);
    default:
      bad_input("quantize: expected F32, F16, BF16, Q8_0, Q4_0 or Q4_K, got {}", dtype_name(type));
  }
}

}  // namespace adder
