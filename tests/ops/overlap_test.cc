// What a call writes, and memory that it shares.
#include "ops/overlap.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/error.h"

namespace adder::ops {
namespace {

constexpr int64_t kItem = sizeof(float);

struct Memory {
  std::vector<float> values = std::vector<float>(64);
  Memory() { std::iota(values.begin(), values.end(), 0.0f); }
  ArrayView view(std::initializer_list<int64_t> shape, int64_t offset = 0) {
    return {values.data() + offset, DType::kF32, shape};
  }
};

bool accepted(const ArrayView& array) {
  try {
    check_output("op", "x", array);
  } catch (const Error&) {
    return false;
  }
  return true;
}

TEST(Overlap, OutputsHaveMemoryForEachElement) {
  Memory m;
  ArrayView a = m.view({2, 3, 4});
  EXPECT_TRUE(accepted(a));
  EXPECT_TRUE(accepted(a.permute({2, 0, 1})));
  EXPECT_TRUE(accepted(a.slice(1, 1, 2)));
  a.stride[1] = -a.stride[1];
  a.data += 2 * 4 * kItem;
  EXPECT_TRUE(accepted(a));
  for (const int64_t stride : {int64_t{0}, kItem, -kItem, 3 * kItem, 2 * kItem + 1}) {
    ArrayView b = m.view({3, 3});
    b.stride[0] = stride;
    EXPECT_EQ(accepted(b), stride == 3 * kItem) << stride;
    b.shape[0] = 1;
    EXPECT_TRUE(accepted(b));
    b.shape[0] = 0;
    EXPECT_TRUE(accepted(b));
  }
}

TEST(Overlap, ExtentsAreExact) {
  Memory m;
  const ArrayView a = m.view({4}, 8);
  EXPECT_TRUE(may_overlap(a, a));
  EXPECT_TRUE(may_overlap(a, m.view({1}, 11)));
  EXPECT_FALSE(may_overlap(a, m.view({1}, 12)));
  EXPECT_TRUE(may_overlap(a, m.view({9}, 0)));
  EXPECT_FALSE(may_overlap(a, m.view({8}, 0)));
  ArrayView backwards = m.view({4}, 15);
  backwards.stride[0] = -kItem;  // 12 to 15
  EXPECT_FALSE(may_overlap(a, backwards));
  backwards.shape[0] = 5;
  EXPECT_TRUE(may_overlap(a, backwards));
  EXPECT_FALSE(may_overlap(a, ArrayView()));
  EXPECT_FALSE(may_overlap(a, m.view({0}, 9)));
}

TEST(Overlap, OnlyWhatOverlapsIsCopied) {
  Memory m;
  const ArrayView written = m.view({2, 4});
  ArrayView apart = m.view({3}, 20), inside = m.view({2, 3}, 1).permute({1, 0});
  ArrayView expanded = m.view({1, 3}, 2), scalar = m.view({}, 5), absent;
  expanded.shape[0] = int64_t{1} << 40;
  expanded.stride[0] = 0;
  const ArrayView before = inside;
  Detached copies;
  const std::vector<ArrayView*> inputs{&apart, &inside, &expanded, &scalar, &absent};
  copies.detach(written, inputs);
  EXPECT_EQ(apart.data, m.view({3}, 20).data);
  EXPECT_FALSE(absent);
  for (ArrayView* copied : {&inside, &expanded, &scalar})
    EXPECT_FALSE(may_overlap(*copied, written));
  EXPECT_EQ(inside.describe(), before.describe());
  EXPECT_EQ(expanded.step(0), 0);
  std::fill(m.values.begin(), m.values.end(), -1.0f);
  const auto at = [](const ArrayView& a) { return *reinterpret_cast<const float*>(a.data); };
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 2; ++c) {
      EXPECT_EQ(at(inside.select(0, r).select(0, c)), static_cast<float>(1 + 3 * c + r));
    }
    EXPECT_EQ(at(expanded.select(0, 1 << 30).select(0, r)), static_cast<float>(2 + r));
  }
  EXPECT_EQ(at(scalar), 5.0f);
}

TEST(Overlap, ACopyThatNoMemoryHoldsIsRefused) {
  Memory m;
  ArrayView wide = m.view({1, 1, 1});
  wide.shape = {int64_t{1} << 31, int64_t{1} << 31, 2};
  wide.stride = {kItem, kItem, kItem};
  EXPECT_THROW(CompactCopy{wide}, Error);
}

}  // namespace
}  // namespace adder::ops
