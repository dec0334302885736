#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace adder {
namespace {

TEST(DType, F16WidensEveryPatternExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float got = f16_to_f32(static_cast<uint16_t>(bits));
    const uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
    const double sign = (bits & 0x8000) ? -1.0 : 1.0;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(got), mantissa != 0) << bits;
      EXPECT_EQ(std::isinf(got), mantissa == 0) << bits;
    } else {
      const double want = exponent == 0
                              ? std::ldexp(mantissa, -24)
                              : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
      EXPECT_EQ(static_cast<double>(got), sign * want) << bits;
    }
    EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
  }
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);            // a tie goes to the even pattern
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);  // here too
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isinf(bf16_to_f32(f32_to_bf16(3.4e38f))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = bf16_to_f32(static_cast<uint16_t>(bits));
    if (!std::isnan(wide)) {
      EXPECT_EQ(f32_to_bf16(wide), bits);
    }
  }
}

}  // namespace
}  // namespace adder
