// Operations that move elements, against values worked out by hand.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "testing/inputs.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Shape = std::vector<int64_t>;

// 0, 1, 2, ... in a shape.
HostValue counting(const Shape& shape) {
  Ints list(static_cast<size_t>(Type{Element::kI32, shape}.size()));
  std::iota(list.begin(), list.end(), 0);
  return host<int32_t>(shape, list);
}

TEST(Movement, Constants) {
  ProgramCase c;
  c.b.result(c.b.constant(1.5f));
  c.b.result(c.b.constant(-7));
  c.b.result(c.b.constant(-std::numeric_limits<float>::infinity()));
  c.b.result(c.b.constant(std::numeric_limits<float>::quiet_NaN()));
  c.b.result(c.b.constant(Element::kU64, 0xfedcba9876543210u));
  c.b.result(c.b.constant(Element::kI8, 0x80));
  c.b.result(c.b.constant(Element::kPred, 1));
  c.b.result(c.b.constant(Element::kF16, 0x3c00));
  c.b.result(c.b.constant(Element::kBF16, 0xff80));
  c.b.result(c.b.constant(Element::kU32, 0xffffffffu));
  c.b.result(c.b.fill(c.b.constant(0.1f), {2, 3}));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<float>(r[0]), Floats{1.5f});
  EXPECT_EQ(values<int32_t>(r[1]), Ints{-7});
  EXPECT_EQ(values<uint32_t>(r[2])[0], 0xff800000u);
  EXPECT_EQ(values<uint32_t>(r[3])[0], 0x7fc00000u);
  EXPECT_EQ(values<uint64_t>(r[4])[0], 0xfedcba9876543210u);
  EXPECT_EQ(values<int8_t>(r[5])[0], -128);
  EXPECT_EQ(values<uint8_t>(r[6])[0], 1);
  EXPECT_EQ(values<uint16_t>(r[7])[0], 0x3c00);
  EXPECT_EQ(values<uint16_t>(r[8])[0], 0xff80);
  EXPECT_EQ(values<uint32_t>(r[9])[0], 0xffffffffu);
  EXPECT_EQ(values<float>(r[10]), Floats(6, 0.1f));
}

TEST(Movement, Iota) {
  ProgramCase c;
  c.b.result(c.b.iota({Element::kI32, {2, 3}}, 1));
  c.b.result(c.b.iota({Element::kF32, {2, 3}}, 0));
  c.b.result(c.b.iota({Element::kU64, {3}}, 0));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(values<float>(r[1]), (Floats{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(values<uint64_t>(r[2]), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(Movement, Reshape) {
  ProgramCase c;
  const Value x = c.input(counting({2, 3}));
  c.b.result(c.b.reshape(x, {3, 1, 2}));
  const HostValue r = c.run_one();
  EXPECT_EQ(r.type.shape, (Shape{3, 1, 2}));
  EXPECT_EQ(values<int32_t>(r), (Ints{0, 1, 2, 3, 4, 5}));
}

TEST(Movement, Transpose) {
  ProgramCase c;
  const Value x = c.input(counting({2, 3, 2}));
  c.b.result(c.b.transpose(x, {1, 0, 2}));
  c.b.result(c.b.transpose(x, {2, 1, 0}));
  const Value halves = c.input(host_half(Element::kBF16, {2, 2}, {1, 2, 3, 4}));
  c.b.result(c.b.convert(c.b.transpose(halves, {1, 0}), Element::kF32));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(r[0].type.shape, (Shape{3, 2, 2}));
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}));
  EXPECT_EQ(values<float>(r[2]), (Floats{1, 3, 2, 4}));
}

TEST(Movement, Broadcast) {
  ProgramCase c;
  const Value x = c.input(counting({3}));
  c.b.result(c.b.broadcast(x, {2, 3}, {1}));
  c.b.result(c.b.broadcast(x, {3, 2}, {0}));
  const Value y = c.input(counting({2, 1}));
  c.b.result(c.b.broadcast(y, {2, 2}, {0, 1}));
  c.b.result(c.b.broadcast(y, {2, 2}, {1, 0}));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(values<int32_t>(r[2]), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(values<int32_t>(r[3]), (Ints{0, 1, 0, 1}));
}

TEST(Movement, Slice) {
  ProgramCase c;
  const Value x = c.input(counting({3, 4}));
  c.b.result(c.b.slice(x, {1, 1}, {3, 3}));
  c.b.result(c.b.slice_axis(x, 1, 3, 1));
  c.b.result(c.b.slice_axis(x, 0, 1, 0));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{5, 6, 9, 10}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{3, 7, 11}));
  EXPECT_EQ(r[2].type.shape, (Shape{0, 4}));
}

TEST(Movement, DynamicSlicesStayWithin) {
  const std::vector<std::pair<Ints, Ints>> cases = {
      {{1, 2}, {6, 7, 10, 11}}, {{-5, 0}, {0, 1, 4, 5}}, {{9, 9}, {6, 7, 10, 11}}};
  for (const auto& [at, want] : cases) {
    ProgramCase c;
    const Value x = c.input(counting({3, 4}));
    const Value i = c.input(host<int32_t>({}, {at[0]})), j = c.input(host<int32_t>({}, {at[1]}));
    c.b.result(c.b.dynamic_slice(x, {i, j}, {2, 2}));
    EXPECT_EQ(values<int32_t>(c.run_one()), want);
  }
}

TEST(Movement, DynamicUpdatesStayWithin) {
  const std::vector<std::pair<int32_t, Ints>> cases = {
      {1, {0, 70, 71, 3}}, {-3, {70, 71, 2, 3}}, {3, {0, 1, 70, 71}}};
  for (const auto& [at, want] : cases) {
    ProgramCase c;
    const Value x = c.input(counting({4})), part = c.input(host<int32_t>({2}, {70, 71}));
    const Value updated = c.b.dynamic_update(x, part, {c.input(host<int32_t>({}, {at}))});
    c.b.result(updated);
    c.b.result(x);  // is read after the update, so the update may not happen in place
    const std::vector<HostValue> r = c.run();
    EXPECT_EQ(values<int32_t>(r[0]), want);
    EXPECT_EQ(values<int32_t>(r[1]), (Ints{0, 1, 2, 3}));
  }
}

TEST(Movement, UpdateOfAnArrayWithItself) {
  ProgramCase c;
  const Value x = c.b.add(c.input(counting({4})), c.b.constant(1));
  c.b.result(c.b.dynamic_update(x, x, {c.b.constant(3)}));
  EXPECT_EQ(values<int32_t>(c.run_one()), (Ints{1, 2, 3, 4}));
}

TEST(Movement, ReshapedMemoryIsNotWrittenWhileItIsRead) {
  ProgramCase c;
  const Value x = c.b.add(c.input(counting({2, 2})), c.b.constant(1));
  const Value flat = c.b.reshape(x, {4});
  const Value updated = c.b.dynamic_update(flat, c.b.fill(c.b.constant(9), {1}), {c.b.constant(0)});
  c.b.result(c.b.add(updated, c.b.reshape(x, {4})));
  EXPECT_EQ(values<int32_t>(c.run_one()), (Ints{10, 4, 6, 8}));
}

TEST(Movement, Concatenate) {
  ProgramCase c;
  const Value x = c.input(counting({2, 2})), y = c.input(host<int32_t>({2, 1}, {7, 8}));
  c.b.result(c.b.concatenate({x, y, x}, 1));
  c.b.result(c.b.concatenate({x, x}, 0));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{0, 1, 7, 0, 1, 2, 3, 8, 2, 3}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Movement, Pad) {
  ProgramCase c;
  const Value x = c.input(counting({2, 2}));
  c.b.result(c.b.pad(x, c.b.constant(-1), {1, 0}, {0, 2}));
  const HostValue r = c.run_one();
  EXPECT_EQ(r.type.shape, (Shape{3, 4}));
  EXPECT_EQ(values<int32_t>(r), (Ints{-1, -1, -1, -1, 0, 1, -1, -1, 2, 3, -1, -1}));
}

TEST(Movement, GatheredRowsStayWithin) {
  ProgramCase c;
  const Value x = c.input(counting({3, 2})), at = c.input(host<int32_t>({4}, {2, 0, -1, 9}));
  c.b.result(c.b.gather_rows(x, at));
  c.b.result(c.b.gather_rows(c.input(counting({3})), at));
  const Value halves = c.input(host_half(Element::kF16, {2, 1, 2}, {1, 2, 3, 4}));
  c.b.result(c.b.convert(c.b.gather_rows(halves, at), Element::kF32));
  const std::vector<HostValue> r = c.run();
  EXPECT_EQ(values<int32_t>(r[0]), (Ints{4, 5, 0, 1, 0, 1, 4, 5}));
  EXPECT_EQ(values<int32_t>(r[1]), (Ints{2, 0, 0, 2}));
  EXPECT_EQ(r[2].type.shape, (Shape{4, 1, 2}));
  EXPECT_EQ(values<float>(r[2]), (Floats{3, 4, 1, 2, 1, 2, 3, 4}));
}

// Permuted, padded and cut at random and back again.
TEST(Movement, RoundTripsOfRandomShapes) {
  testing::Rng rng(5);
  for (int n = 0; n < 20; ++n) {
    Shape shape, permutation, low, high;
    for (int64_t i = 0; i < 1 + rng.below(4); ++i) shape.push_back(1 + rng.below(5));
    permutation.resize(shape.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    for (size_t i = shape.size(); i-- > 1;)
      std::swap(permutation[i], permutation[static_cast<size_t>(rng.below(std::ssize(shape)))]);
    Shape back(shape.size());
    for (size_t i = 0; i < shape.size(); ++i)
      back[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    for (size_t i = 0; i < shape.size(); ++i) {
      low.push_back(rng.below(3));
      high.push_back(rng.below(3));
    }
    ProgramCase c;
    const Value x = c.input(counting(shape));
    const Value padded = c.b.pad(c.b.transpose(x, permutation), c.b.constant(-9), low, high);
    Shape limits = low;
    for (size_t i = 0; i < shape.size(); ++i)
      limits[i] += shape[static_cast<size_t>(permutation[i])];
    c.b.result(c.b.transpose(c.b.slice(padded, low, limits), back));
    EXPECT_EQ(values<int32_t>(c.run_one()), values<int32_t>(counting(shape)));
  }
}

TEST(Builder, LeavesOutWhatChangesNothing) {
  Program program;
  Builder b(program);
  const Value x = b.argument({Element::kF32, {2, 3}});
  EXPECT_EQ(b.reshape(x, {2, 3}), x);
  EXPECT_EQ(b.convert(x, Element::kF32), x);
  EXPECT_EQ(b.bitcast(x, Element::kF32), x);
  EXPECT_EQ(b.transpose(x, {0, 1}), x);
  EXPECT_EQ(b.broadcast(x, {2, 3}, {0, 1}), x);
  EXPECT_EQ(b.slice(x, {0, 0}, {2, 3}), x);
  EXPECT_TRUE(program.main.ops.empty());
  EXPECT_NE(b.broadcast(b.argument({Element::kF32, {2, 2}}), {2, 2}, {1, 0}), Value{1});
}

}  // namespace
}  // namespace adder::xla
