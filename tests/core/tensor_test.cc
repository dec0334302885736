#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/error.h"

namespace adder {
namespace {

class TensorViews : public testing::Test {
 protected:
  TensorViews() : values_(24), t_(values_.data(), DType::kF32, {2, 3, 4}) {
    std::iota(values_.begin(), values_.end(), 0.0f);
  }
  std::vector<float> values_;
  Tensor t_;
};

TEST_F(TensorViews, SliceMovesTheStartAndKeepsTheStrides) {
  const Tensor s = t_.slice(2, 1, 2);
  EXPECT_EQ(*s.ptr<float>(), 1.0f);
  EXPECT_EQ(s.dim(2), 2);
  EXPECT_EQ(s.stride[1], 4);
  EXPECT_FALSE(s.is_contiguous());
  EXPECT_TRUE(s.has_unit_inner_stride());
  EXPECT_EQ(t_.slice(0, 1, 1).ptr<float>()[0], 12.0f);
  EXPECT_TRUE(t_.slice(0, 1, 1).is_contiguous());
}

TEST_F(TensorViews, SelectDropsTheFirstAxis) {
  const Tensor s = t_.select(1).select(2);
  EXPECT_EQ(s.rank, 1);
  EXPECT_EQ(s.dim(0), 4);
  EXPECT_EQ(*s.ptr<float>(), 20.0f);
}

TEST_F(TensorViews, SplitLastAddsAnAxisEvenToAStridedView) {
  const Tensor s = t_.slice(1, 0, 2).split_last(2, 2);
  EXPECT_EQ(s.rank, 4);
  EXPECT_EQ(s.stride, (std::array<int64_t, 4>{12, 4, 2, 1}));
  EXPECT_EQ(t_.reshape({6, 4}).dim(0), 6);
}

TEST_F(TensorViews, RefusesWhatIsOutsideOrDoesNotFit) {
  EXPECT_THROW(t_.slice(2, 3, 2), Error);
  EXPECT_THROW(t_.slice(3, 0, 1), Error);
  EXPECT_THROW(t_.slice(0, -1, 1), Error);
  EXPECT_THROW(t_.split_last(3, 2), Error);
  EXPECT_THROW(t_.reshape({5, 5}), Error);
  EXPECT_THROW(t_.slice(2, 0, 2).reshape({12}), Error);
  EXPECT_EQ(t_.describe(), "(2, 3, 4) F32");
}

TEST(BlockTensor, RowsAreAddressedInBytesAndCutBetweenBlocks) {
  std::vector<std::byte> memory(row_bytes(DType::kQ8_0, 3 * 64));
  const Tensor t(memory.data(), DType::kQ8_0, {3, 64});
  EXPECT_EQ(t.describe(), "(3, 64) Q8_0");
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.bytes(), memory.data());
  EXPECT_EQ(t.bytes(64), memory.data() + 68);
  EXPECT_EQ(t.slice(0, 1, 2).offset, 64);
  EXPECT_EQ(t.slice(0, 1, 2).bytes(), memory.data() + 68);
  EXPECT_EQ(t.select(2).bytes(32), memory.data() + 2 * 68 + 34);
  EXPECT_EQ(t.slice(1, 32, 32).select(1).bytes(), memory.data() + 68 + 34);
  EXPECT_EQ(t.split_last(2, 32).dim(2), 32);
  EXPECT_EQ(t.reshape({6, 32}).select(5).bytes(), memory.data() + 5 * 34);
  EXPECT_THROW(t.slice(1, 16, 32), Error);
  EXPECT_THROW(t.slice(1, 0, 33), Error);
  EXPECT_THROW(t.split_last(4, 16), Error);
  EXPECT_THROW(t.reshape({12, 16}), Error);
}

TEST(BlockTensor, BytesOfPlainTypesAreTheirElements) {
  float values[12];
  const Tensor t(values, DType::kF32, {3, 4});
  EXPECT_EQ(t.slice(0, 1, 2).bytes(2), reinterpret_cast<std::byte*>(values + 6));
  EXPECT_EQ(t.slice(1, 1, 2).bytes(), reinterpret_cast<std::byte*>(values + 1));
}

}  // namespace
}  // namespace adder
