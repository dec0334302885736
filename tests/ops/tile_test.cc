// Between any memory and packed tiles: every dtype, axis order, size around the strips, odd
// address.
#include "ops/tile.h"

#include <gtest/gtest.h>

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
