// Element-wise operations against values worked out by hand, through builder, verifier and
// interpreter.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int32_t kHighest = std::numeric_limits<int32_t>::max();

// The bits: NaN equals NaN, and 0 is not -0.
template <typename T>
std::vector<uint64_t> bits(const std::vector<T>& list) {
  std::vector<uint64_t> out;
  for (const T v : list) {
    uint64_t b = 0;
    std::memcpy(&b, &v, sizeof(T));
    if constexpr (std::is_same_v<T, float>)
      if (std::isnan(v)) b = 0x7fc00000;
    out.push_back(b);
  }
  return out;
}

template <typename T>
void expect_binary(Opcode code, const std::vector<T>& x, const std::vector<T>& y,
                   const std::vector<T>& want) {
  SCOPED_TRACE(opcode_name(code));
  ProgramCase c;
  const auto count = static_cast<int64_t>(x.size());
  const Value a = c.input(host<T>({count}, x)), b = c.input(host<T>({count}, y));
  c.b.result(c.b.binary(code, a, b));
  EXPECT_EQ(bits(values<T>(c.run_one())), bits(want));
}

TEST(Elementwise, FloatArithmetic) {
  expect_binary<float>(Opcode::kAdd, {1, -0.0f, kInf, 0x1p24f}, {2, -0.0f, -kInf, 1},
                       {3, -0.0f, kNan, 0x1p24f});
  expect_binary<float>(Opcode::kSubtract, {1, 0, kInf}, {2.5f, 0, kInf}, {-1.5f, 0, kNan});
  expect_binary<float>(Opcode::kMultiply, {3, -2, 0}, {0.5f, 0, kInf}, {1.5f, -0.0f, kNan});
  expect_binary<float>(Opcode::kDivide, {3, -1, 0}, {2, 0, 0}, {1.5f, -kInf, kNan});
  expect_binary<float>(Opcode::kMaximum, {1, kNan, 2, -kInf}, {3, 1, kNan, 5}, {3, kNan, kNan, 5});
  expect_binary<float>(Opcode::kMinimum, {1, kNan, 2, -kInf}, {3, 1, kNan, 5},
                       {1, kNan, kNan, -kInf});
}

TEST(Elementwise, IntegersWrapAround) {
  expect_binary<int32_t>(Opcode::kAdd, {kHighest, 5}, {1, -7}, {kLowest, -2});
  expect_binary<int32_t>(Opcode::kSubtract, {kLowest, 5}, {1, 7}, {kHighest, -2});
  expect_binary<int32_t>(Opcode::kMultiply, {65536, -3}, {65536, 7}, {0, -21});
  expect_binary<int32_t>(Opcode::kDivide, {7, -7, 7, kLowest}, {2, 2, 0, -1}, {3, -3, -1, kLowest});
  expect_binary<int32_t>(Opcode::kMaximum, {1, -4}, {3, -5}, {3, -4});
  expect_binary<int32_t>(Opcode::kMinimum, {1, -4}, {3, -5}, {1, -5});
  expect_binary<uint32_t>(Opcode::kMaximum, {1, 0x80000000u}, {3, 5}, {3, 0x80000000u});
  expect_binary<uint32_t>(Opcode::kDivide, {7, 0xffffffffu}, {0, 2}, {0xffffffffu, 0x7fffffffu});
  expect_binary<uint64_t>(Opcode::kMultiply, {0x9e3779b97f4a7c15u}, {0xbf58476d1ce4e5b9u},
                          {0x9e3779b97f4a7c15u * 0xbf58476d1ce4e5b9u});
  expect_binary<int8_t>(Opcode::kAdd, {127, -128}, {1, -1}, {-128, 127});
}

TEST(Elementwise, Bits) {
  expect_binary<int32_t>(Opcode::kAnd, {12, -1}, {10, 7}, {8, 7});
  expect_binary<int32_t>(Opcode::kOr, {12, -8}, {10, 7}, {14, -1});
  expect_binary<int32_t>(Opcode::kXor, {12, -1}, {10, 7}, {6, -8});
  expect_binary<uint32_t>(Opcode::kShiftLeft, {1, 3, 1}, {4, 31, 32}, {16, 0x80000000u, 0});
  expect_binary<int32_t>(Opcode::kShiftRightLogical, {-1, 256, 1}, {28, 4, 33}, {15, 16, 0});
  expect_binary<uint64_t>(Opcode::kShiftRightLogical, {0x8000000000000000u, 5}, {63, 64}, {1, 0});
  expect_binary<uint64_t>(Opcode::kShiftLeft, {5, 5}, {62, 64}, {uint64_t{1} << 62, 0});
}

TEST(Elementwise, Predicates) {
  ProgramCase c;
  const Value a = c.input(host_pred({4}, {0, 0, 1, 1})), b = c.input(host_pred({4}, {0, 1, 0, 1}));
  c.b.result(c.b.binary(Opcode::kAnd, a, b));
  c.b.result(c.b.binary(Opcode::kOr, a, b));
  c.b.result(c.b.binary(Opcode::kXor, a, b));
  c.b.result(c.b.unary(Opcode::kNot, a));
  c.b.result(c.b.compare(Comparison::kLt, a, b));
  using Bytes = std::vector<uint8_t>;
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<uint8_t>(r[0]), (Bytes{0, 0, 0, 1}));
  EXPECT_EQ(values<uint8_t>(r[1]), (Bytes{0, 1, 1, 1}));
  EXPECT_EQ(values<uint8_t>(r[2]), (Bytes{0, 1, 1, 0}));
  EXPECT_EQ(values<uint8_t>(r[3]), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(values<uint8_t>(r[4]), (Bytes{0, 1, 0, 0}));
}

void expect_unary(Opcode code, const std::vector<float>& x, const std::vector<float>& want,
                  XlaTolerance tolerance = {}) {
  SCOPED_TRACE(opcode_name(code));
  ProgramCase c;
  c.b.result(c.b.unary(code, c.input(host<float>({static_cast<int64_t>(x.size())}, x))));
  const std::vector<float> got = values<float>(c.run_one(tolerance));
  ASSERT_EQ(got.size(), want.size());
  // The C library's functions are within one step of float32 of the value, which is rounded here.
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(want[i]) && want[i] != 0) {
      EXPECT_NEAR(got[i], want[i], std::abs(want[i]) * 0x1p-22f) << "of " << x[i];
    } else {
      EXPECT_EQ(bits<float>({got[i]}), bits<float>({want[i]})) << "of " << x[i];
    }
  }
}

TEST(Elementwise, Functions) {
  // XLA has its own exp and log: a few steps of float32 apart.
  const XlaTolerance few{.relative = 4e-7, .absolute = 1e-44};
  expect_unary(Opcode::kNegate, {1, -0.0f, kInf}, {-1, 0, -kInf});
  expect_unary(Opcode::kAbs, {-1, -0.0f, -kInf}, {1, 0, kInf});
  expect_unary(Opcode::kExponential, {0, 1, -2.5f, -kInf, 89, kNan, -1e30f},
               {1, 2.71828183f, 0.0820849986f, 0, kInf, kNan, 0}, few);
  expect_unary(Opcode::kLog, {1, 10, 0, -1, kInf}, {0, 2.30258509f, -kInf, kNan, kInf}, few);
  expect_unary(Opcode::kLogPlusOne, {0, 1e-10f, 1.5f, -1}, {0, 1e-10f, 0.916290732f, -kInf}, few);
  expect_unary(Opcode::kRsqrt, {4, 2, 0, kInf}, {0.5f, 0.707106781f, kInf, 0}, few);
  expect_unary(Opcode::kSqrt, {4, 2, 0, -1}, {2, 1.41421356f, 0, kNan}, few);
  expect_unary(Opcode::kFloor, {1.5f, -1.5f, -0.0f, 3}, {1, -2, -0.0f, 3});
}

TEST(Elementwise, FiniteNumbers) {
  ProgramCase c;
  c.b.result(c.b.unary(Opcode::kIsFinite, c.input(host<float>({4}, {1, kInf, -kInf, kNan}))));
  EXPECT_EQ(values<uint8_t>(c.run_one()), (std::vector<uint8_t>{1, 0, 0, 0}));
}

TEST(Elementwise, IntegerFunctions) {
  ProgramCase c;
  const Value x = c.input(host<int32_t>({3}, {5, -6, kLowest}));
  const Value y = c.input(host<int8_t>({3}, {5, -6, -128}));
  c.b.result(c.b.unary(Opcode::kNegate, x));
  c.b.result(c.b.unary(Opcode::kAbs, x));
  c.b.result(c.b.unary(Opcode::kNot, x));
  c.b.result(c.b.unary(Opcode::kAbs, y));
  c.b.result(c.b.unary(Opcode::kNot, c.input(host<uint64_t>({1}, {5}))));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (std::vector<int32_t>{-5, 6, kLowest}));
  EXPECT_EQ(values<int32_t>(r[1]), (std::vector<int32_t>{5, 6, kLowest}));
  EXPECT_EQ(values<int32_t>(r[2]), (std::vector<int32_t>{-6, 5, kHighest}));
  EXPECT_EQ(values<int8_t>(r[3]), (std::vector<int8_t>{5, 6, -128}));
  EXPECT_EQ(values<uint64_t>(r[4]), (std::vector<uint64_t>{~uint64_t{5}}));
}

TEST(Elementwise, Comparisons) {
  ProgramCase c;
  const Value x = c.input(host<float>({4}, {1, 2, kNan, 0}));
  const Value y = c.input(host<float>({4}, {2, 2, kNan, -0.0f}));
  using enum Comparison;
  for (const Comparison comparison : {kEq, kNe, kLt, kLe, kGt, kGe})
    c.b.result(c.b.compare(comparison, x, y));
  const std::vector<HostValue> r = c.run();
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(values<uint8_t>(r[0]), (Bytes{0, 1, 0, 1}));
  EXPECT_EQ(values<uint8_t>(r[1]), (Bytes{1, 0, 1, 0}));
  EXPECT_EQ(values<uint8_t>(r[2]), (Bytes{1, 0, 0, 0}));
  EXPECT_EQ(values<uint8_t>(r[3]), (Bytes{1, 1, 0, 1}));
  EXPECT_EQ(values<uint8_t>(r[4]), (Bytes{0, 0, 0, 0}));
  EXPECT_EQ(values<uint8_t>(r[5]), (Bytes{0, 1, 0, 1}));
}

TEST(Elementwise, ComparisonsKnowSigns) {
  ProgramCase c;
  c.b.result(c.b.compare(Comparison::kGt, c.input(host<int32_t>({1}, {-1})), c.b.constant(1)));
  c.b.result(c.b.compare(Comparison::kGt, c.input(host<uint32_t>({1}, {0xffffffffu})),
                         c.b.constant(Element::kU32, 1)));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<uint8_t>(r[0])[0], 0);
  EXPECT_EQ(values<uint8_t>(r[1])[0], 1);
}

TEST(Elementwise, SelectTakesEveryElement) {
  ProgramCase c;
  const Value p = c.input(host_pred({2}, {1, 0}));
  c.b.result(c.b.select(p, c.input(host<float>({2}, {1, 2})), c.b.constant(5.0f)));
  c.b.result(c.b.select(p, c.b.constant(Element::kBF16, 0x3f80),
                        c.input(host_half(Element::kBF16, {2}, {3, 4}))));
  c.b.result(c.b.select(c.b.constant(Element::kPred, 0), c.input(host<uint64_t>({2}, {1, 2})),
                        c.input(host<uint64_t>({2}, {3, 4}))));
  c.b.result(c.b.select(p, c.b.constant(Element::kPred, 1), c.b.constant(Element::kPred, 0)));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (std::vector<float>{1, 5}));
  EXPECT_EQ(values<uint16_t>(r[1]), (std::vector<uint16_t>{0x3f80, f32_to_bf16(4)}));
  EXPECT_EQ(values<uint64_t>(r[2]), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(values<uint8_t>(r[3]), (std::vector<uint8_t>{1, 0}));
}

TEST(Elementwise, ScalarsAreBroadcastOnEitherSide) {
  ProgramCase c;
  const Value x = c.input(host<float>({2, 2}, {1, 2, 3, 4}));
  c.b.result(c.b.subtract(c.b.constant(1.0f), x));
  c.b.result(c.b.subtract(x, c.b.constant(1.0f)));
  c.b.result(c.b.subtract(c.b.constant(1.0f), c.b.constant(4.0f)));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (std::vector<float>{0, -1, -2, -3}));
  EXPECT_EQ(values<float>(r[1]), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(values<float>(r[2]), (std::vector<float>{-3}));
  EXPECT_EQ(r[2].type, (Type{Element::kF32, {}}));
}

TEST(Convert, FloatsAreRoundedToNearestEven) {
  ProgramCase c;
  const Value x = c.input(host<float>({5}, {1.00390625f, 1.01171875f, 70000, kInf, -1e-8f}));
  c.b.result(c.b.convert(x, Element::kBF16));
  c.b.result(c.b.convert(x, Element::kF16));
  c.b.result(c.b.convert(c.b.convert(x, Element::kF16), Element::kF32));
  c.b.result(c.b.convert(c.b.convert(x, Element::kBF16), Element::kF32));
  const std::vector<HostValue> r = c.run();
  using Halves = std::vector<uint16_t>;
  EXPECT_EQ(values<uint16_t>(r[0]), (Halves{0x3f80, 0x3f82, 0x4789, 0x7f80, 0xb22c}));
  EXPECT_EQ(values<uint16_t>(r[1]), (Halves{0x3c04, 0x3c0c, 0x7c00, 0x7c00, 0x8000}));
  EXPECT_EQ(bits(values<float>(r[2])), bits<float>({1.00390625f, 1.01171875f, kInf, kInf, -0.0f}));
  EXPECT_EQ(values<float>(r[3])[1], 1.015625f);
}

TEST(Convert, FloatsToIntegersTowardsZeroAndClamped) {
  ProgramCase c;
  const Value x = c.input(host<float>({6}, {2.9f, -2.9f, 3e9f, -3e9f, kNan, 300}));
  for (const Element e : {Element::kI32, Element::kI8, Element::kPred})
    c.b.result(c.b.convert(x, e));
  const Value y = c.input(host<float>({3}, {2.9f, 3e9f, 1e30f}));
  c.b.result(c.b.convert(y, Element::kU32));
  c.b.result(c.b.convert(y, Element::kU64));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (std::vector<int32_t>{2, -2, kHighest, kLowest, 0, 300}));
  EXPECT_EQ(values<int8_t>(r[1]), (std::vector<int8_t>{2, -2, 127, -128, 0, 127}));
  EXPECT_EQ(values<uint8_t>(r[2]), (std::vector<uint8_t>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(values<uint32_t>(r[3]), (std::vector<uint32_t>{2, 3000000000u, 0xffffffffu}));
  EXPECT_EQ(values<uint64_t>(r[4]), (std::vector<uint64_t>{2, 3000000000u, ~uint64_t{0}}));
}

TEST(Convert, IntegersKeepTheirLowBits) {
  ProgramCase c;
  const Value x = c.input(host<int32_t>({3}, {-1, 258, 16777217}));
  for (const Element e :
       {Element::kI8, Element::kU32, Element::kU64, Element::kF32, Element::kPred})
    c.b.result(c.b.convert(x, e));
  c.b.result(c.b.convert(c.input(host<int8_t>({2}, {-3, 127})), Element::kBF16));
  c.b.result(c.b.convert(c.input(host_pred({2}, {0, 1})), Element::kF32));
  c.b.result(c.b.convert(c.input(host<uint64_t>({1}, {~uint64_t{0}})), Element::kF32));
  c.b.result(c.b.convert(c.input(host<uint32_t>({1}, {0xffffffffu})), Element::kU64));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int8_t>(r[0]), (std::vector<int8_t>{-1, 2, 1}));
  EXPECT_EQ(values<uint32_t>(r[1]), (std::vector<uint32_t>{0xffffffffu, 258, 16777217}));
  EXPECT_EQ(values<uint64_t>(r[2]), (std::vector<uint64_t>{~uint64_t{0}, 258, 16777217}));
  EXPECT_EQ(values<float>(r[3]), (std::vector<float>{-1, 258, 16777216}));
  EXPECT_EQ(values<uint8_t>(r[4]), (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_EQ(values<uint16_t>(r[5]), (std::vector<uint16_t>{f32_to_bf16(-3), f32_to_bf16(127)}));
  EXPECT_EQ(values<float>(r[6]), (std::vector<float>{0, 1}));
  EXPECT_EQ(values<float>(r[7]), (std::vector<float>{0x1p64f}));
  EXPECT_EQ(values<uint64_t>(r[8]), (std::vector<uint64_t>{0xffffffffu}));
}

TEST(Convert, BitsStayWhatTheyAre) {
  ProgramCase c;
  const Value x = c.input(host<float>({2}, {1, -2}));
  c.b.result(c.b.bitcast(x, Element::kU32));
  const Value bytes = c.b.bitcast(x, Element::kI8);
  c.b.result(bytes);
  c.b.result(c.b.bitcast(bytes, Element::kF32));
  c.b.result(c.b.bitcast(c.input(host<int8_t>({1, 2}, {0x00, 0x3c})), Element::kF16));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<uint32_t>(r[0]), (std::vector<uint32_t>{0x3f800000u, 0xc0000000u}));
  EXPECT_EQ(r[1].type, (Type{Element::kI8, {2, 4}}));
  EXPECT_EQ(values<int8_t>(r[1]), (std::vector<int8_t>{0, 0, -128, 63, 0, 0, 0, -64}));
  EXPECT_EQ(values<float>(r[2]), (std::vector<float>{1, -2}));
  EXPECT_EQ(r[3].type, (Type{Element::kF16, {1}}));
  EXPECT_EQ(values<uint16_t>(r[3]), (std::vector<uint16_t>{0x3c00}));
}

}  // namespace
}  // namespace adder::xla
