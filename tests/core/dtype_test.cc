#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

TEST(DType, F16RoundsToNearestEven) {
  // Every half comes back, and so does the middle between two neighbours: to the even one. A hair
  // to either side of the middle decides for that side.
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = f16_to_f32(static_cast<uint16_t>(bits));
    const float high = bits == 0x7bff ? 65536.0f : f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    ASSERT_EQ(f32_to_f16(low), bits);
    ASSERT_EQ(f32_to_f16(middle), bits + (bits & 1)) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(f32_to_f16(-middle), 0x8000 + bits + (bits & 1));
  }
  EXPECT_EQ(f32_to_f16(3e38f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-1e-40f), 0x8000);
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu}) {
    const float value = std::bit_cast<float>(nan);
    EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value)))) << nan;
    EXPECT_EQ(std::signbit(f16_to_f32(f32_to_f16(value))), std::signbit(value)) << nan;
  }
}

}  // namespace
}  // namespace adder
