// What the shared matmul suite cannot see: that the two ways through the CPU's matmul give the same
// bits, for every instruction set, weight type and number of threads, and that 16-bit weights are
// widened exactly.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backends/cpu/matmul.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/packed_weight.h"
#include "core/error.h"
#include "core/tensor.h"

namespace adder {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// A matrix inside a larger block: odd start, gaps between rows.
template <typename T>
struct Matrix {
  Matrix(int64_t rows_, int64_t cols_, T fill, int64_t lead_ = 1, int64_t gap = 3)
      : rows(rows_), cols(cols_), stride(cols_ + gap), lead(lead_) {
    memory.assign(static_cast<size_t>(lead + rows * stride), fill);
  }
  T& at(int64_t r, int64_t c) { return memory[static_cast<size_t>(lead + r * stride + c)]; }
  Tensor tensor(DType type) {
    Tensor t(memory.data(), type, {rows, cols});
    t.offset = lead;
    t.stride[0] = stride;
    return t;
  }
  int64_t rows, cols, stride, lead;
  std::vector<T> memory;
};

uint16_t narrow(DType type, float value) {
  if (type == DType::kBF16) return f32_to_bf16(value);
  // Truncation to binary16 of a value in its normal range: any rounding does for test data.
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto exponent = static_cast<int>((bits >> 23) & 0xff) - 112;
  if (exponent <= 0) return static_cast<uint16_t>((bits >> 16) & 0x8000u);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3ffu));
}

float widen(DType type, uint16_t bits) {
  return type == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

struct Problem {
  Problem(int64_t rows, int64_t n, int64_t k, DType dtype, bool with_bias, uint32_t seed)
      : type(dtype),
        x(rows, k, kPoison),
        weight32(n, k, kPoison, 1, 0),
        weight16(n, k, uint16_t{0x7fff}, 1, 0),
        bias(static_cast<size_t>(with_bias ? n : 0)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) x.at(r, i) = uniform(random);
    }
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k; ++i) {
        const float value = uniform(random);
        weight16.at(r, i) = narrow(type, value);
        weight32.at(r, i) = type == DType::kF32 ? value : widen(type, weight16.at(r, i));
      }
    }
    for (float& b : bias) b = uniform(random);
  }

  // Rows [first, first + count) of the product.
  std::vector<float> run(CpuContext& context, int64_t first, int64_t count) {
    Matrix<float> out(count, weight32.rows, kPoison, 2, 5);
    MatmulArgs args;
    args.x = x.tensor(DType::kF32).slice(0, first, count);
    Buffer owner;
    args.weight = pack_weight(type == DType::kF32 ? weight32.tensor(type) : weight16.tensor(type),
                              context.pool, &owner);
    if (!bias.empty()) args.bias = Tensor(bias.data(), DType::kF32, {weight32.rows});
    args.out = out.tensor(DType::kF32);
    cpu_matmul(args, context);
    std::vector<float> values;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < out.cols; ++i) {
        values.push_back(out.at(r, i));
        out.at(r, i) = kPoison;
      }
    }
    for (float v : out.memory) EXPECT_TRUE(std::isnan(v)) << "wrote outside its rows";
    return values;
  }

  DType type;
  Matrix<float> x, weight32;
  Matrix<uint16_t> weight16;
  std::vector<float> bias;
};

void expect_same_bits(const std::vector<float>& got, const float* want, const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ", element " << i << ": got " << got[i] << ", want " << want[i];
  }
}

struct Case {
  std::string isa;
  DType type;
};

std::vector<Case> cases_of(std::initializer_list<DType> types) {
  std::vector<Case> cases;
  for (const Isa& isa : runnable_isas()) {
    for (DType type : types) cases.push_back({std::string(isa.name), type});
  }
  return cases;
}

class CpuMatmul : public ::testing::TestWithParam<Case> {
 protected:
  CpuContext one_{1, choose_isa(GetParam().isa)};
  CpuContext three_{3, choose_isa(GetParam().isa)};
};

class CpuMatmulNarrow : public CpuMatmul {};

// in_features around every vector length, around the block of the sum, and several blocks.
constexpr int64_t kLengths[] = {1,  2,  3,  4,  7,   8,   9,   15,  16,   17,  31,
                                33, 48, 63, 80, 511, 512, 513, 777, 1025, 1536};

TEST_P(CpuMatmul, OneRowHasTheSameBitsInEveryBatch) {
  constexpr int64_t kMost = 47;
  for (int64_t k : kLengths) {
    for (int64_t n : {1, 3, 4, 6, 67}) {
      Problem problem(kMost, n, k, GetParam().type, n % 2 == 0, static_cast<uint32_t>(k + n));
      std::vector<float> single;
      for (int64_t row = 0; row < kMost; ++row) {
        const std::vector<float> out = problem.run(one_, row, 1);
        single.insert(single.end(), out.begin(), out.end());
      }
      for (int64_t rows = 2; rows <= kMost; rows += rows < 20 ? 1 : 9) {
        const int64_t first = kMost - rows;
        CpuContext& context = rows % 2 == 0 ? one_ : three_;
        expect_same_bits(problem.run(context, first, rows), &single[static_cast<size_t>(first * n)],
                         fmt::format("{} x {}, {} rows", n, k, rows));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CpuMatmul, ThreadsDoNotChangeBits) {
  // Wide, narrow (cut along the rows) and short sums, as they occur in models.
  const struct {
    int64_t rows, n, k;
  } shapes[] = {{130, 300, 100}, {400, 20, 70}, {200, 130, 48}, {1, 999, 640}, {5, 257, 1030}};
  for (const auto& s : shapes) {
    Problem problem(s.rows, s.n, s.k, GetParam().type, true, 7);
    const std::vector<float> want = problem.run(one_, 0, s.rows);
    for (int repeat = 0; repeat < 3; ++repeat) {
      expect_same_bits(problem.run(three_, 0, s.rows), want.data(),
                       fmt::format("{} rows, {} x {}", s.rows, s.n, s.k));
    }
  }
}

// Rigorous bound: a term passes through at most kSumBlock fused steps (or two roundings each where
// there is no fma) and one addition per block, the bias included:
// |error| <= roundings * 2^-24 * (sum |x w| + |bias|).
TEST_P(CpuMatmul, MatchesFloat64WithinTheRoundingBound) {
  for (int64_t k : kLengths) {
    constexpr int64_t kRowCount = 14, kOuts = 9;
    Problem p(kRowCount, kOuts, k, GetParam().type, k % 2 == 1, static_cast<uint32_t>(k));
    const std::vector<float> got = p.run(three_, 0, kRowCount);
    const double roundings = 2.0 * static_cast<double>(std::min(k, kSumBlock) + k / kSumBlock + 1);
    for (int64_t r = 0; r < kRowCount; ++r) {
      for (int64_t n = 0; n < kOuts; ++n) {
        double sum = p.bias.empty() ? 0.0 : p.bias[static_cast<size_t>(n)];
        double magnitude = std::abs(sum);
        for (int64_t i = 0; i < k; ++i) {
          const double term = double{p.x.at(r, i)} * double{p.weight32.at(n, i)};
          sum += term;
          magnitude += std::abs(term);
        }
        const double error = std::abs(got[static_cast<size_t>(r * kOuts + n)] - sum);
        ASSERT_LE(error, roundings * 0x1p-24 * magnitude) << "k " << k << " row " << r;
      }
    }
  }
}

// All 65536 weights, one product with 1.0 each: exact, subnormals and infinities included.
TEST_P(CpuMatmulNarrow, EveryNarrowWeightIsWidenedExactly) {
  const DType type = GetParam().type;
  for (int64_t rows : {1, 16}) {  // the direct and the packed way
    for (int64_t k : {1, 32}) {   // the tail of a row, and whole vectors
      const int64_t n = 65536 / k;
      std::vector<uint16_t> weight(65536);
      for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<uint16_t>(i);
      for (int64_t one = 0; one<k; one += k> 1 ? 13 : 1) {
        std::vector<float> x(static_cast<size_t>(rows * k)), out(static_cast<size_t>(rows * n));
        for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(r * k + one)] = 1.0f;
        MatmulArgs args;
        args.x = Tensor(x.data(), DType::kF32, {rows, k});
        Buffer owner;
        args.weight = pack_weight(Tensor(weight.data(), type, {n, k}), three_.pool, &owner);
        args.out = Tensor(out.data(), DType::kF32, {rows, n});
        cpu_matmul(args, three_);
        for (int64_t i = 0; i < n; ++i) {
          // 0 * Inf is NaN: a row with an infinity or NaN is exact only by itself.
          bool finite = true;
          for (int64_t j = 0; j < k; ++j) {
            finite &= std::isfinite(widen(type, weight[static_cast<size_t>(i * k + j)]));
          }
          const float want = widen(type, weight[static_cast<size_t>(i * k + one)]);
          for (int64_t r = 0; r < rows; ++r) {
            const float got = out[static_cast<size_t>(r * n + i)];
            if (std::isnan(want) || (!finite && k > 1)) {
              ASSERT_TRUE(std::isnan(got)) << "weight " << i * k + one << ": got " << got;
            } else {
              ASSERT_EQ(got, want) << "weight " << i * k + one;
            }
          }
        }
      }
    }
  }
}

// A NaN or an infinity reaches its own outputs and nobody else's, also across padded tails.
TEST_P(CpuMatmul, SpecialValuesStayInTheirRowAndColumn) {
  for (int64_t rows : {5, 29}) {
    constexpr int64_t kOuts = 7, kLength = 37;
    Problem p(rows, kOuts, kLength, GetParam().type, false, 3);
    p.x.at(2, 36) = std::numeric_limits<float>::infinity();
    p.weight32.at(5, 36) = kPoison;
    p.weight16.at(5, 36) = GetParam().type == DType::kBF16 ? 0x7fc0 : 0x7e00;
    const std::vector<float> out = p.run(one_, 0, rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < kOuts; ++n) {
        const float v = out[static_cast<size_t>(r * kOuts + n)];
        if (n == 5) {
          EXPECT_TRUE(std::isnan(v));
        } else if (r == 2) {
          EXPECT_TRUE(std::isinf(v)) << v;
        } else {
          EXPECT_TRUE(std::isfinite(v)) << v;
        }
      }
    }
  }
}

TEST_P(CpuMatmul, EmptySumsGiveTheBias) {
  for (int64_t rows : {0, 1, 30}) {
    Problem p(rows, 5, 0, GetParam().type, true, 1);
    const std::vector<float> out = p.run(one_, 0, rows);
    ASSERT_EQ(out.size(), static_cast<size_t>(rows * 5));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], p.bias[i % 5]);
  }
}

std::string test_name(const ::testing::TestParamInfo<Case>& param) {
  return param.param.isa + "_" + std::string(dtype_name(param.param.type));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, CpuMatmul,
                         ::testing::ValuesIn(cases_of({DType::kF32, DType::kF16, DType::kBF16})),
                         test_name);
INSTANTIATE_TEST_SUITE_P(AllIsas, CpuMatmulNarrow,
                         ::testing::ValuesIn(cases_of({DType::kF16, DType::kBF16})), test_name);

TEST(CpuIsa, TheBestIsChosenAndOthersByName) {
  const std::vector<Isa> isas = runnable_isas();
  ASSERT_FALSE(isas.empty());
  for (const Isa& isa : isas) EXPECT_EQ(choose_isa(isa.name).index, isa.index);
  EXPECT_EQ(choose_isa("").index, isas[0].index);
  try {
    choose_isa("Z80");
    FAIL() << "accepted an unknown instruction set";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadInput);
    EXPECT_NE(std::string(e.what()).find(std::string(isas[0].name)), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace adder
