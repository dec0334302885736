// Products, reductions and sorting.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "testing/compare.h"
#include "testing/inputs.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Shape = std::vector<int64_t>;

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Two sums of n products in float32, each in its own order, differ by at most 2 n rounding errors
// of the largest partial sum; with n <= 70 and terms below 16 that is less than this.
const XlaTolerance kSums{.relative = 1e-6, .absolute = 2e-4};

TEST(Dot, MatrixTimesMatrix) {
  ProgramCase c;
  const Value x = c.input(host<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Value w = c.input(host<float>({2, 3}, {1, 0, 1, 2, 1, 0}));
  c.b.result(c.b.dot(x, w, {{}, {}, {1}, {1}}));
  c.b.result(c.b.dot(x, w, {{}, {}, {0}, {0}}));
  c.b.result(c.b.dot(x, w, {{}, {}, {0, 1}, {0, 1}}));
  c.b.result(c.b.dot(x, w, {{0}, {0}, {1}, {1}}));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (Floats{4, 4, 10, 13}));
  EXPECT_EQ(values<float>(r[1]), (Floats{9, 4, 1, 12, 5, 2, 15, 6, 3}));
  EXPECT_EQ(r[1].type.shape, (Shape{3, 3}));
  EXPECT_EQ(values<float>(r[2]), (Floats{17}));
  EXPECT_EQ(values<float>(r[3]), (Floats{4, 13}));
}

TEST(Dot, OuterProduct) {
  ProgramCase c;
  const Value x = c.input(host<float>({2}, {2, 3})), y = c.input(host<float>({3}, {5, 7, 11}));
  c.b.result(c.b.dot(x, y, {}));
  const HostValue r = c.run_one();
  EXPECT_EQ(r.type.shape, (Shape{2, 3}));
  EXPECT_EQ(values<float>(r), (Floats{10, 14, 22, 15, 21, 33}));
}

TEST(Dot, HalvesAreWidenedAndSummedInFloat32) {
  // 1 + 2^-7 is a bfloat16, its square is not; 256 * 256 is no float16.
  ProgramCase c;
  const Value x = c.input(host_half(Element::kBF16, {1, 2}, {1.0078125f, 256}));
  const Value y = c.input(host_half(Element::kF16, {1, 2}, {1.0078125f, 256}));
  c.b.result(c.b.dot(x, x, {{}, {}, {1}, {1}}));
  c.b.result(c.b.dot(y, y, {{}, {}, {1}, {1}}));
  const std::vector<HostValue> r = c.run();
  const Floats want{1.01568603515625f + 65536};
  EXPECT_EQ(values<float>(r[0]), want);
  EXPECT_EQ(values<float>(r[1]), want);
}

int64_t offset_of(const Shape& index, const Shape& shape) {
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + index[i];
  return offset;
}

// Steps an index through a shape; false at the end.
bool next(Shape& index, const Shape& shape) {
  for (size_t i = shape.size(); i-- > 0;) {
    if (++index[i] < shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

// The definition: for each index of the result a sum in float64.
std::vector<double> naive_dot(const Floats& x, const Shape& xs, const Floats& y, const Shape& ys,
                              const DotDims& d) {
  const auto rest = [](const Shape& shape, const Shape& batch, const Shape& contract) {
    Shape axes;
    for (int64_t a = 0; a < std::ssize(shape); ++a)
      if (std::ranges::count(batch, a) + std::ranges::count(contract, a) == 0) axes.push_back(a);
    return axes;
  };
  const Shape x_rest = rest(xs, d.lhs_batch, d.lhs_contract);
  const Shape y_rest = rest(ys, d.rhs_batch, d.rhs_contract);
  Shape out_shape, sum_shape;
  for (const int64_t a : d.lhs_batch) out_shape.push_back(xs[a]);
  for (const int64_t a : x_rest) out_shape.push_back(xs[a]);
  for (const int64_t a : y_rest) out_shape.push_back(ys[a]);
  for (const int64_t a : d.lhs_contract) sum_shape.push_back(xs[a]);
  std::vector<double> out;
  Shape o(out_shape.size());
  do {
    Shape xi(xs.size()), yi(ys.size());
    size_t k = 0;
    for (size_t i = 0; i < d.lhs_batch.size(); ++i, ++k)
      xi[d.lhs_batch[i]] = yi[d.rhs_batch[i]] = o[k];
    for (const int64_t a : x_rest) xi[a] = o[k++];
    for (const int64_t a : y_rest) yi[a] = o[k++];
    double sum = 0;
    Shape s(sum_shape.size());
    do {
      for (size_t i = 0; i < s.size(); ++i) xi[d.lhs_contract[i]] = yi[d.rhs_contract[i]] = s[i];
      sum += static_cast<double>(x[offset_of(xi, xs)]) * y[offset_of(yi, ys)];
    } while (next(s, sum_shape));
    out.push_back(sum);
  } while (next(o, out_shape));
  return out;
}

TEST(Dot, AnyAxesAgainstTheDefinition) {
  const struct {
    Shape x, y;
    DotDims dims;
  } cases[] = {
      {{5, 70}, {37, 70}, {{}, {}, {1}, {1}}},         // k innermost in both
      {{5, 20}, {20, 40}, {{}, {}, {1}, {0}}},         // rhs across
      {{20, 5}, {20, 3}, {{}, {}, {0}, {0}}},          // both across
      {{3, 4, 17}, {3, 6, 17}, {{0}, {0}, {2}, {2}}},  // batched
      {{4, 3, 17}, {17, 3, 6}, {{1}, {1}, {2}, {0}}},  // a batch axis in the middle
      {{2, 3, 4, 5}, {5, 3, 2, 6}, {{1, 0}, {1, 2}, {3}, {0}}},
      {{2, 3, 4, 5}, {4, 2, 3, 5}, {{1}, {2}, {0, 2}, {1, 0}}},  // two contracted axes
      {{3, 4}, {3, 4}, {{0, 1}, {0, 1}, {}, {}}},                // nothing contracted
      {{7}, {7}, {{}, {}, {0}, {0}}},
  };
  testing::Rng rng(3);
  for (const auto& t : cases) {
    for (const Element element : {Element::kF32, Element::kBF16, Element::kF16}) {
      Floats x = rng.normals(Type{element, t.x}.size());
      Floats y = rng.normals(Type{element, t.y}.size());
      ProgramCase c;
      Value a = kNoValue, b = kNoValue;
      if (element == Element::kF32) {
        a = c.input(host<float>(t.x, x)), b = c.input(host<float>(t.y, y));
      } else {
        const bool bf16 = element == Element::kBF16;
        for (Floats* list : {&x, &y})
          for (float& v : *list) v = bf16 ? bf16_to_f32(f32_to_bf16(v)) : f16_to_f32(f32_to_f16(v));
        a = c.input(host_half(element, t.x, x)), b = c.input(host_half(element, t.y, y));
      }
      c.b.result(c.b.dot(a, b, t.dims));
      // At most 70 terms below 16, in 16 lanes: each sum has 9 rounding errors of at most 2^-24.
      EXPECT_TRUE(testing::close(values<float>(c.run_one(kSums)), naive_dot(x, t.x, y, t.y, t.dims),
                                 {.atol = 4e-5, .rtol = 1e-6, .nmse = 1e-12}))
          << type_text({element, t.x}) << " . " << type_text({element, t.y});
    }
  }
}

TEST(Dot, HasTheSameBitsAlone) {
  testing::Rng rng(8);
  const Floats x = rng.normals(3 * 50), w = rng.normals(40 * 50);
  const auto product = [&](int64_t rows, const Floats& left) {
    ProgramCase c;
    const Value a = c.input(host<float>({rows, 50}, left));
    c.b.result(c.b.dot(a, c.input(host<float>({40, 50}, w)), {{}, {}, {1}, {1}}));
    return values<float>(c.run_one(kSums));
  };
  const Floats all = product(3, x), one = product(1, Floats(x.begin() + 50, x.begin() + 100));
  EXPECT_EQ(one, Floats(all.begin() + 40, all.begin() + 80));
}

TEST(Reduce, EveryReducer) {
  ProgramCase c;
  const Value x = c.input(host<float>({2, 3}, {1, -2, 3, 4, 5, -6}));
  const Value i = c.input(host<int32_t>({2, 3}, {1, -2, 3, 4, 5, -6}));
  const Value u = c.input(host<uint32_t>({2}, {7, 0xfffffff5u}));
  const Value p = c.input(host_pred({2, 2}, {1, 1, 0, 1}));
  for (const Reducer reducer : {Reducer::kAdd, Reducer::kMaximum, Reducer::kMinimum}) {
    c.b.result(c.b.reduce(reducer, x, {1}));
    c.b.result(c.b.reduce(reducer, i, {0}));
    c.b.result(c.b.reduce(reducer, u, {0}));
  }
  c.b.result(c.b.reduce(Reducer::kAnd, p, {1}));
  c.b.result(c.b.reduce(Reducer::kOr, p, {0, 1}));
  c.b.result(c.b.reduce(Reducer::kAnd, i, {1}));
  c.b.result(c.b.reduce(Reducer::kOr, i, {1}));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (Floats{2, 3}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{5, 3, -3}));
  EXPECT_EQ(values<uint32_t>(r[2]), (std::vector<uint32_t>{0xfffffffcu}));
  EXPECT_EQ(values<float>(r[3]), (Floats{3, 5}));
  EXPECT_EQ(values<int32_t>(r[4]), (Ints{4, 5, 3}));
  EXPECT_EQ(values<uint32_t>(r[5]), (std::vector<uint32_t>{0xfffffff5u}));
  EXPECT_EQ(values<float>(r[6]), (Floats{-2, -6}));
  EXPECT_EQ(values<int32_t>(r[7]), (Ints{1, -2, -6}));
  EXPECT_EQ(values<uint32_t>(r[8]), (std::vector<uint32_t>{7}));
  EXPECT_EQ(values<uint8_t>(r[9]), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(values<uint8_t>(r[10]), (std::vector<uint8_t>{1}));
  EXPECT_EQ(values<int32_t>(r[11]), (Ints{1 & -2 & 3, 4 & 5 & -6}));
  EXPECT_EQ(values<int32_t>(r[12]), (Ints{1 | -2 | 3, 4 | 5 | -6}));
}

TEST(Reduce, NothingGivesTheNeutralElement) {
  ProgramCase c;
  const Value x = c.input(host<float>({2, 0}, {})), i = c.input(host<int8_t>({0}, {}));
  for (const Reducer reducer : {Reducer::kAdd, Reducer::kMaximum, Reducer::kMinimum}) {
    c.b.result(c.b.reduce(reducer, x, {1}));
    c.b.result(c.b.reduce(reducer, i, {0}));
  }
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (Floats{0, 0}));
  EXPECT_EQ(values<int8_t>(r[1])[0], 0);
  EXPECT_EQ(values<float>(r[2]), (Floats{-kInfinite, -kInfinite}));
  EXPECT_EQ(values<int8_t>(r[3])[0], -128);
  EXPECT_EQ(values<float>(r[4]), (Floats{kInfinite, kInfinite}));
  EXPECT_EQ(values<int8_t>(r[5])[0], 127);
}

TEST(Reduce, LargestIsNanWhereOneIs) {
  ProgramCase c;
  c.b.result(
      c.b.reduce(Reducer::kMaximum, c.input(host<float>({2, 2}, {1, kNotANumber, 3, 2})), {1}));
  const Floats r = values<float>(c.run_one());
  EXPECT_TRUE(std::isnan(r[0]));
  EXPECT_EQ(r[1], 3);
}

TEST(Reduce, AnyAxesAgainstTheDefinition) {
  const Shape shape = {3, 4, 5, 19};
  testing::Rng rng(4);
  const Floats x = rng.normals(Type{Element::kF32, shape}.size());
  for (int mask = 0; mask < 16; ++mask) {
    Shape axes, kept;
    for (int64_t a = 0; a < 4; ++a) (mask >> a & 1 ? axes : kept).push_back(a);
    Shape out_shape;
    for (const int64_t a : kept) out_shape.push_back(shape[a]);
    std::vector<double> want(static_cast<size_t>(Type{Element::kF32, out_shape}.size()));
    Shape index(4);
    do {
      Shape o;
      for (const int64_t a : kept) o.push_back(index[a]);
      want[offset_of(o, out_shape)] += x[offset_of(index, shape)];
    } while (next(index, shape));
    ProgramCase c;
    c.b.result(c.b.reduce(Reducer::kAdd, c.input(host<float>(shape, x)), axes));
    // 1140 terms of up to 6, as above.
    EXPECT_TRUE(testing::close(values<float>(c.run_one({.relative = 1e-6, .absolute = 1e-3})), want,
                               {.atol = 1e-3, .rtol = 1e-6, .nmse = 1e-11}));
  }
}

TEST(Sort, LargestFirstStableNanLast) {
  ProgramCase c;
  const Floats keys = {1, kNotANumber, 3, 1, -kInfinite, 3, kNotANumber, kInfinite, 0, -0.0f};
  const Value k = c.input(host<float>({10}, keys)), i = c.b.iota({Element::kI32, {10}}, 0);
  for (const Value v : c.b.sort({k, i}, 0)) c.b.result(v);
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{7, 2, 5, 0, 3, 8, 9, 4, 1, 6}));
  const Floats sorted = values<float>(r[0]);
  for (size_t n = 0; n < 8; ++n) EXPECT_EQ(sorted[n], keys[values<int32_t>(r[1])[n]]);
  EXPECT_TRUE(std::isnan(sorted[8]) && std::isnan(sorted[9]));
}

TEST(Sort, AlongEitherAxis) {
  ProgramCase c;
  const Value k = c.input(host<float>({2, 3}, {1, 5, 3, 2, 4, 9}));
  const Value i = c.input(host<int32_t>({2, 3}, {10, 11, 12, 13, 14, 15}));
  for (const Value v : c.b.sort({k, i, i}, 0)) c.b.result(v);
  for (const Value v : c.b.sort({k, i}, 1)) c.b.result(v);
  c.b.result(c.b.sort({k}, 1)[0]);
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), (Floats{2, 5, 9, 1, 4, 3}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{13, 11, 15, 10, 14, 12}));
  EXPECT_EQ(values<int32_t>(r[2]), (Ints{13, 11, 15, 10, 14, 12}));
  EXPECT_EQ(values<float>(r[3]), (Floats{5, 3, 1, 9, 4, 2}));
  EXPECT_EQ(values<int32_t>(r[4]), (Ints{11, 12, 10, 15, 14, 13}));
  EXPECT_EQ(values<float>(r[5]), (Floats{5, 3, 1, 9, 4, 2}));
}

TEST(Sort, ManyTies) {
  testing::Rng rng(6);
  Floats keys;
  for (int n = 0; n < 500; ++n) keys.push_back(static_cast<float>(rng.below(7)));
  ProgramCase c;
  const Value k = c.input(host<float>({500}, keys));
  const std::vector<Value> sorted = c.b.sort({k, c.b.iota({Element::kI32, {500}}, 0)}, 0);
  c.b.result(sorted[1]);
  const Ints order = values<int32_t>(c.run_one());
  for (size_t n = 1; n < order.size(); ++n) {
    const float before = keys[order[n - 1]], after = keys[order[n]];
    EXPECT_TRUE(before > after || (before == after && order[n - 1] < order[n])) << n;
  }
}

}  // namespace
}  // namespace adder::xla
