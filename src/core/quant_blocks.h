// Pieces that the quantizers and dequantizers share; the layouts are in core/quant.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace adder::quant {

inline float load_f16(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

// To the nearest integer, ties to even, for |v| < 2^22: beside 1.5 * 2^23 float32 has steps of 1.
// Unlike std::nearbyint it is two additions on any machine, so loops over it become vector code.
inline float round_even(float v) {
  constexpr float kMagic = 12582912.0f;
  return (v + kMagic) - kMagic;
}

// The j-th (0 to 7) scale and minimum of the 12 bytes of Q4_K and Q5_K: the first four of each are
// the low 6 bits of bytes 0..3 and 4..7; the last four have their low nibbles in bytes 8..11 and
// their upper two bits on top of the first ones.
struct ScaleAndMin {
  int scale, min;
};
constexpr ScaleAndMin k_scale_and_min(const uint8_t* b, int j) {
  if (j < 4) return {b[j] & 63, b[j + 4] & 63};
  return {(b[j + 4] & 15) | (b[j - 4] >> 6) << 4, (b[j + 4] >> 4) | (b[j] >> 6) << 4};
}

}  // namespace adder::quant
