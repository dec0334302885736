// Between any memory and packed tiles: every dtype, axis order, size around the strips, odd
// address.
#include "ops/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "testing/inputs.h"

namespace adder::ops {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};

// (rows, cols) at an odd address in memory of its own; turned: with rows neighbouring.
struct Array {
  std::vector<std::byte> memory;
  ArrayView view;

  Array(int64_t rows, int64_t cols, DType dtype, bool turned)
      : memory(static_cast<size_t>(rows * cols) * dtype_size(dtype) + 1) {
    view = ArrayView(memory.data() + 1, dtype, {turned ? cols : rows, turned ? rows : cols});
    if (turned) view = view.permute({1, 0});
  }
  std::byte* at(int64_t r, int64_t c) const {
    return view.data + r * view.step(0) + c * view.step(1);
  }
};

TEST(Tile, GathersAndScattersEveryLayout) {
  testing::Rng rng(1);
  for (DType dtype : kFloats) {
    for (bool turned : {false, true}) {
      for (int64_t rows : {1, 3, 4, 63, 65}) {
        for (int64_t cols : {1, 2, 5, 16, 35}) {
          const Array array(rows, cols, dtype, turned);
          const std::vector<float> values = rng.normals(rows * cols);
          scatter(values.data(), cols, array.view);
          std::vector<float> back(values.size());
          gather(array.view, back.data(), cols);
          for (int64_t i = 0; i < rows * cols; ++i) {
            float want = values[static_cast<size_t>(i)];
            if (dtype == DType::kF16) want = f16_to_f32(f32_to_f16(want));
            if (dtype == DType::kBF16) want = bf16_to_f32(f32_to_bf16(want));
            ASSERT_EQ(back[static_cast<size_t>(i)], want);
            ASSERT_EQ(load_float(array.at(i / cols, i % cols), dtype), want);
          }
        }
      }
    }
  }
}

TEST(Tile, WidensEveryHalf) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  gather(ArrayView(halves.data(), DType::kF16, {1, 65536}), wide.data(), 65536);
  for (size_t i = 0; i < halves.size(); ++i) {
    const float want = f16_to_f32(halves[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(want)) << i;
  }
}

// Every sign, exponent and half-way case: all patterns of the upper 21 bits, with the lowest bits
// of the rest that decide a rounding.
TEST(Tile, NarrowsEveryPattern) {
  std::vector<float> wide;
  for (uint64_t upper = 0; upper < (uint64_t{1} << 32); upper += 1 << 11) {
    for (const uint32_t lower : {0x000u, 0x001u, 0x400u, 0x7ffu})
      wide.push_back(std::bit_cast<float>(static_cast<uint32_t>(upper) | lower));
  }
  const auto count = static_cast<int64_t>(wide.size());
  std::vector<uint16_t> narrow(wide.size());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    scatter(wide.data(), count, ArrayView(narrow.data(), dtype, {1, count}));
    size_t wrong = 0;
    for (size_t i = 0; i < wide.size(); ++i)
      wrong += narrow[i] != (dtype == DType::kF16 ? f32_to_f16(wide[i]) : f32_to_bf16(wide[i]));
    EXPECT_EQ(wrong, 0u);
  }
  for (int64_t length = 0; length < 9; ++length) {  // what four do not divide
    std::fill(narrow.begin(), narrow.end(), 7);
    scatter(wide.data() + 4000000, length, ArrayView(narrow.data() + 1, DType::kF16, {1, length}));
    for (int64_t i = 0; i < length; ++i)
      EXPECT_EQ(narrow[static_cast<size_t>(i) + 1],
                f32_to_f16(wide[static_cast<size_t>(4000000 + i)]));
    EXPECT_EQ(narrow[0], 7);
    EXPECT_EQ(narrow[static_cast<size_t>(length) + 1], 7);
  }
}

TEST(Tile, UsesMemoryAsItLiesWhereItCan) {
  std::vector<float> memory(200);
  float scratch[20];
  const ArrayView rows(memory.data(), DType::kF32, {10, 20});
  EXPECT_EQ(load_rows(rows.slice(1, 3, 2), scratch).data, memory.data() + 3);
  EXPECT_EQ(load_rows(rows.permute({1, 0}).slice(0, 0, 2), scratch).data, scratch);
  EXPECT_EQ(output_rows(rows.slice(1, 3, 2), scratch).data, memory.data() + 3);
  ArrayView odd = rows.slice(0, 0, 1).slice(1, 0, 2);
  odd.data += 1;
  EXPECT_EQ(load_rows(odd, scratch).data, scratch);
}

}  // namespace
}  // namespace adder::ops
