// matmul of every backend and instruction set against the reference, and the reference against
// long double.

#include "testing/dense.h"
#include "testing/recurrence.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(RefMatmul, AgreesWithLongDouble) {
  Rng rng(60);
  const auto ref = make_backend("ref");
  for (DType dtype : kDtypes) {
    const Weight w = Weight::random(rng, dtype, 7, 33, 0.2f);
    const auto x = rng.normals(3 * 33), bias = rng.normals(7);
    std::vector<double> want;
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t n = 0; n < 7; ++n) {
        long double sum = 0;
        for (int64_t k = 32; k >= 0; --k)
          sum += static_cast<long double>(x[t * 33 + k]) * w.values[n * 33 + k];
        want.push_back(static_cast<double>(sum + bias[n]));
      }
    EXPECT_TRUE(close(run_matmul(*ref, x, w, bias, 3), want, kRoundedOnce)) << dtype_name(dtype);
  }
}

// The definition written out: x rounded by hand, dequantized weights, one long sum.
TEST(RefMatmul, RoundsActivationsForBlockFormats) {
  Rng rng(67);
  const auto ref = make_backend("ref");
  for (DType dtype : kBlockFormats) {
    const int64_t in = 2 * block_shape(dtype).elements, rows = 3, out = 5;
    const Weight w = Weight::random(rng, dtype, out, in, 0.2f);
    const auto x = rng.normals(rows * in), bias = rng.normals(out);
    std::vector<long double> rounded(x.size());
    for (size_t begin = 0; begin < x.size(); begin += 32) {
      float largest = 0;
      for (size_t i = begin; i < begin + 32; ++i) largest = std::max(largest, std::abs(x[i]));
      const float d = largest / 127;
      for (size_t i = begin; i < begin + 32; ++i)
        rounded[i] = static_cast<long double>(d) * std::nearbyint(x[i] / d);
    }
    std::vector<double> want;
    double magnitude = 0;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t n = 0; n < out; ++n) {
        long double sum = 0, absolute = 0;
        for (int64_t k = in - 1; k >= 0; --k) {
          sum += rounded[t * in + k] * w.values[n * in + k];
          absolute += std::abs(rounded[t * in + k] * w.values[n * in + k]);
        }
        want.push_back(static_cast<double>(sum + bias[n]));
        magnitude = std::max(magnitude, static_cast<double>(absolute));
      }
    // Dequantized values of Q4_K and Q5_K are themselves rounded once, each product by 2^-24.
    Tolerance bar = kRoundedOnce;
    if (dtype == DType::kQ4_K || dtype == DType::kQ5_K) bar.atol += magnitude * 0x1p-24;
    EXPECT_TRUE(close(run_matmul(*ref, x, w, bias, rows), want, bar)) << dtype_name(dtype);
    for (const Layout& layout : kLayouts)
      EXPECT_TRUE(same_bits(run_matmul(*ref, x, w, bias, rows, layout),
                            run_matmul(*ref, x, w, bias, rows)));
  }
}

TEST(RefMatmul, NanAndInfSpoilTheirRowOfBlockFormats) {
  Rng rng(68);
  const auto ref = make_backend("ref");
  const Weight w = Weight::random(rng, DType::kQ4_0, 7, 64, 0.2f);
  auto x = rng.normals(4 * 64);
  const auto clean = run_matmul(*ref, x, w, {}, 4);
  x[1 * 64 + 40] = NAN;
  x[3 * 64] = INFINITY;
  const auto got = run_matmul(*ref, x, w, {}, 4);
  for (int64_t i = 0; i < 4 * 7; ++i) {
    const bool spoilt = i / 7 == 1 || i / 7 == 3;
    EXPECT_EQ(std::isnan(got[i]), spoilt) << i;
    if (!spoilt) {
      EXPECT_EQ(got[i], clean[i]) << i;
    }
  }
}

class Matmul : public BackendTest {
 protected:
  void expect_like_ref(Rng& rng, DType dtype, int64_t rows, int64_t in, int64_t out,
                       const Layout& layout, bool with_bias = true) {
    // Scaled so that sums are of the order of 1 whatever their length.
    const Weight w = Weight::random(rng, dtype, out, in,
                                    1 / std::sqrt(static_cast<float>(std::max<int64_t>(in, 1))));
    const auto x = rng.normals(rows * in);
    const auto bias = with_bias ? rng.normals(out) : std::vector<float>{};
    EXPECT_TRUE(close(run_matmul(*backend_, x, w, bias, rows, layout),
                      run_matmul(*ref_, x, w, bias, rows), kDot))
        << fmt::format("{} rows {} in {} out {} lead {}", dtype_name(dtype), rows, in, out,
                       layout.lead);
  }
};
ADDER_TEST_ALL_TARGETS(Matmul);

TEST_P(Matmul, OddShapesAndLayouts) {
  Rng rng(61);
  for (DType dtype : kDtypes) {
    for (const Layout& layout : kLayouts) {
      for (int64_t in = 0; in <= 33; ++in) expect_like_ref(rng, dtype, 3, in, 5, layout);
      for (int64_t out = 0; out <= 33; ++out) expect_like_ref(rng, dtype, 2, 9, out, layout);
      for (int64_t rows = 0; rows <= 17; ++rows) expect_like_ref(rng, dtype, rows, 37, 6, layout);
      for (int64_t in : {48, 63, 64, 65, 100, 127, 128, 129, 255, 257})
        expect_like_ref(rng, dtype, 5, in, 7, layout, false);
    }
  }
}

TEST_P(Matmul, RandomShapes) {
  Rng rng(62);
  for (int round = 0; round < 60; ++round)
    expect_like_ref(rng, kDtypes[rng.below(3)], 1 + rng.below(40), 1 + rng.below(300),
                    1 + rng.below(70), kLayouts[rng.below(3)], rng.below(2) == 0);
}

// Long sums, where float32 accumulation is hardest, and wide outputs, which are cut among threads.
TEST_P(Matmul, RealSizes) {
  Rng rng(63);
  for (DType dtype : kDtypes) {
    expect_like_ref(rng, dtype, 1, 768, 1536, kPacked, false);
    expect_like_ref(rng, dtype, 7, 5120, 96, kPacked, false);
    expect_like_ref(rng, dtype, 33, 768, 80, kPacked, true);
  }
}

// A row alone, in company of any size, on any number of threads, anywhere in memory, twice: the
// same bits.
TEST_P(Matmul, ARowDependsOnNothingElse) {
  Rng rng(64);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  const std::pair<int64_t, int64_t> sizes[] = {{1, 3}, {7, 5}, {64, 33}, {100, 70}, {1029, 130}};
  for (DType dtype : kDtypes) {
    for (const auto& [in, out] : sizes) {
      const Weight w = Weight::random(rng, dtype, out, in, 0.1f);
      const auto bias = rng.normals(out);
      const auto x = rng.normals(37 * in);
      const auto all = run_matmul(*backend_, x, w, bias, 37);
      const auto what = fmt::format("{} in {} out {}", dtype_name(dtype), in, out);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 8, 15, 16, 36}) {
        const int64_t begin = rng.below(37 - rows + 1);
        EXPECT_TRUE(same_bits(
            run_matmul(*backend_, cut_rows(x, 37, begin, rows), w, bias, rows, kLayouts[rows % 3]),
            cut_rows(all, 37, begin, rows)))
            << what << ", rows " << rows;
      }
      EXPECT_TRUE(same_bits(run_matmul(*one, x, w, bias, 37), all)) << what << ", 1 thread";
      EXPECT_TRUE(same_bits(run_matmul(*three, x, w, bias, 37), all)) << what << ", 3 threads";
      EXPECT_TRUE(same_bits(run_matmul(*backend_, x, w, bias, 37, kOdd), all)) << what << ", odd";
      EXPECT_TRUE(same_bits(run_matmul(*backend_, x, w, bias, 37), all)) << what << ", again";
    }
  }
}

// Block formats: within a block the sums are exact, so what separates a backend from the reference
// is the order of the float32 additions.
TEST_P(Matmul, BlockFormatsLikeTheReference) {
  if (!keeps_block_formats()) GTEST_SKIP() << "see tests/xla/quantized_test.cc";
  Rng rng(69);
  for (DType dtype : kBlockFormats) {
    const int64_t block = block_shape(dtype).elements;
    for (int64_t blocks : {0, 1, 2, 3, 9})
      for (int64_t out : {1, 5, 8, 31, 32, 33, 70})
        expect_like_ref(rng, dtype, 3, blocks * block, out, kLayouts[out % 3]);
    for (int64_t rows = 0; rows <= 27; ++rows)
      expect_like_ref(rng, dtype, rows, 2 * block, 40, kLayouts[rows % 3], rows % 2 == 0);
    expect_like_ref(rng, dtype, 259, 1280, 96, kPacked);  // blocks along k, and pieces of rows
    expect_like_ref(rng, dtype, 1, 5120, 96, kPacked, false);
  }
}

TEST_P(Matmul, ARowOfBlockFormatsDependsOnNothingElse) {
  if (!keeps_block_formats()) GTEST_SKIP() << "see tests/xla/quantized_test.cc";
  Rng rng(70);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  for (DType dtype : kBlockFormats) {
    for (int64_t in : {256, 1024}) {
      const Weight w = Weight::random(rng, dtype, 75, in, 0.1f);
      const auto bias = rng.normals(75), x = rng.normals(260 * in);
      const auto all = run_matmul(*backend_, x, w, bias, 260);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 25, 100}) {
        const int64_t begin = rng.below(260 - rows + 1);
        EXPECT_TRUE(same_bits(
            run_matmul(*backend_, cut_rows(x, 260, begin, rows), w, bias, rows, kLayouts[rows % 3]),
            cut_rows(all, 260, begin, rows)))
            << dtype_name(dtype) << ", rows " << rows;
      }
      EXPECT_TRUE(same_bits(run_matmul(*one, x, w, bias, 260), all)) << dtype_name(dtype);
      EXPECT_TRUE(same_bits(run_matmul(*three, x, w, bias, 260), all)) << dtype_name(dtype);
    }
  }
}

// Values that round to the edges of int8, blocks of zeros, tiny and huge ones, NaN and Inf.
TEST_P(Matmul, BlockFormatsTakeAnyActivation) {
  if (!keeps_block_formats()) GTEST_SKIP() << "see tests/xla/quantized_test.cc";
  Rng rng(71);
  for (DType dtype : kBlockFormats) {
    const Weight w = Weight::random(rng, dtype, 9, 512, 0.05f);
    auto x = rng.normals(10 * 512);
    std::fill_n(x.begin(), 512, 0.0f);
    std::fill_n(x.begin() + 512, 512, 1.0f);
    for (int i = 0; i < 512; ++i) {
      x[2 * 512 + i] = i % 2 == 0 ? -1.0f : 1.0f;
      x[3 * 512 + i] *= 1e-39f;
      x[4 * 512 + i] *= 1e30f;
      x[5 * 512 + i] = static_cast<float>(i % 32) - 15.5f;  // halves: round to even
    }
    x[6 * 512 + 100] = NAN;
    x[7 * 512 + 511] = -INFINITY;
    const auto got = run_matmul(*backend_, x, w, {}, 10), want = run_matmul(*ref_, x, w, {}, 10);
    for (int64_t r = 0; r < 10; ++r) {
      for (int64_t n = 0; n < 9; ++n) {
        const float g = got[r * 9 + n], v = want[r * 9 + n];
        if (r == 6 || r == 7) {
          EXPECT_TRUE(std::isnan(g)) << dtype_name(dtype) << " row " << r;
        } else {
          const float bar = r == 4 ? 1e30f : 1.0f;
          EXPECT_NEAR(g / bar, v / bar, 1e-4) << dtype_name(dtype) << " row " << r;
        }
      }
    }
  }
}

// Neither may an output depend on its neighbours: the order is that of in_features alone.
TEST_P(Matmul, AnOutputDependsOnItsOwnWeightsOnly) {
  Rng rng(65);
  const Weight w = Weight::random(rng, DType::kF32, 41, 77, 0.1f);
  const auto x = rng.normals(5 * 77);
  const auto all = run_matmul(*backend_, x, w, {}, 5);
  for (int64_t n : {0, 1, 7, 40}) {
    const Weight row{DType::kF32, 1, 77, cut_rows(w.values, 41, n, 1), {}};
    const auto got = run_matmul(*backend_, x, row, {}, 5);
    for (int64_t t = 0; t < 5; ++t) EXPECT_EQ(got[t], all[t * 41 + n]) << t << ", " << n;
  }
}

// Each of the 65536 patterns of a 16-bit weight, times 1: subnormals, infinities and NaN included.
TEST_P(Matmul, EverySixteenBitWeightIsWidenedExactly) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Weight w{dtype, 65536, 1};
    for (uint32_t b = 0; b < 65536; ++b) w.bits.push_back(static_cast<uint16_t>(b));
    const auto got = run_matmul(*backend_, {1, 1, 1}, w, {}, 3);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto bits = static_cast<uint16_t>(i % 65536);
      const float want = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      wrong += std::isnan(want) ? !std::isnan(got[i]) : got[i] != want;
    }
    EXPECT_EQ(wrong, 0u) << dtype_name(dtype);
  }
}

TEST_P(Matmul, NanAndInfStayInTheirRow) {
  Rng rng(66);
  const Weight w = Weight::random(rng, DType::kBF16, 19, 40, 0.1f);
  auto x = rng.normals(9 * 40);
  const auto clean = run_matmul(*backend_, x, w, {}, 9);
  x[4 * 40 + 39] = NAN;
  x[6 * 40] = INFINITY;
  const auto got = run_matmul(*backend_, x, w, {}, 9);
  for (int64_t t = 0; t < 9; ++t)
    for (int64_t n = 0; n < 19; ++n) {
      const float g = got[t * 19 + n];
      if (t == 4) {
        EXPECT_TRUE(std::isnan(g)) << n;
      } else if (t == 6) {
        EXPECT_EQ(g, w.values[n * 40] > 0 ? INFINITY : -INFINITY) << n;
      } else {
        EXPECT_EQ(g, clean[t * 19 + n]) << t << ", " << n;
      }
    }
}

}  // namespace
}  // namespace adder::testing
