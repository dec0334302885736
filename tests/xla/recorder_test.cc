// Buffers that hold values: views of every kind read what was written, and what is recorded once is
// compiled once.
#include "backends/xla/recorder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/xla/xla_backend.h"
#include "core/error.h"
#include "testing/compare.h"
#include "testing/inputs.h"

namespace adder::xla {
namespace {

using adder::testing::Rng;
using adder::testing::same_bits;

class XlaRecorder : public ::testing::Test {
 protected:
  Tensor matrix(int64_t rows, int64_t cols) {
    buffers_.push_back(backend_.allocate(static_cast<size_t>(rows * cols) * sizeof(float)));
    return Tensor(buffers_.back().data(), DType::kF32, {rows, cols});
  }
  Tensor matrix(int64_t rows, int64_t cols, const std::vector<float>& values) {
    const Tensor t = matrix(rows, cols);
    backend_.write(t, std::as_bytes(std::span(values)));
    return t;
  }
  std::vector<float> values(const Tensor& t) {
    std::vector<float> host(static_cast<size_t>(t.size()));
    backend_.read(t, std::as_writable_bytes(std::span(host)));
    return host;
  }
  // By an operation, whatever the strides of both are.
  void copy(const Tensor& x, const Tensor& out) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < x.dim(0); ++i) rows.push_back(i);
    backend_.gather_rows(x, rows, out);
  }
  int64_t compiled() { return backend_.recorder().executor().compiled(); }

  XlaBackend backend_{make_interpreter()};
  std::vector<Buffer> buffers_;
  Rng rng_{1};
};

// The host's idea of a matrix in a buffer beside the backend's, through random writes and reads of
// rectangles, by operations and by the host.
TEST_F(XlaRecorder, RectanglesOfOneBuffer) {
  constexpr int64_t kRows = 9, kCols = 12;
  for (int round = 0; round < 60; ++round) {
    std::vector<float> want = rng_.normals(kRows * kCols);
    const Tensor whole = matrix(kRows, kCols, want);
    for (int change = 0; change < 6; ++change) {
      const int64_t row = rng_.below(kRows), rows = 1 + rng_.below(kRows - row);
      const int64_t col = rng_.below(kCols), cols = 1 + rng_.below(kCols - col);
      const Tensor part = whole.slice(0, row, rows).slice(1, col, cols);
      const auto fresh = rng_.normals(rows * cols);
      if (part.is_contiguous() && rng_.below(2) == 0)
        backend_.write(part, std::as_bytes(std::span(fresh)));
      else
        copy(matrix(rows, cols, fresh), part);
      for (int64_t i = 0; i < rows * cols; ++i)
        want[static_cast<size_t>((row + i / cols) * kCols + col + i % cols)] =
            fresh[static_cast<size_t>(i)];
      // Another rectangle, read by an operation.
      const int64_t from = rng_.below(kRows), count = 1 + rng_.below(kRows - from);
      const int64_t left = rng_.below(kCols), width = 1 + rng_.below(kCols - left);
      const Tensor out = matrix(count, width);
      copy(whole.slice(0, from, count).slice(1, left, width), out);
      std::vector<float> expected;
      for (int64_t i = 0; i < count * width; ++i)
        expected.push_back(
            want[static_cast<size_t>((from + i / width) * kCols + left + i % width)]);
      ASSERT_TRUE(same_bits(values(out), expected)) << "round " << round;
    }
    ASSERT_TRUE(same_bits(values(whole), want)) << "round " << round;
  }
}

// Rows that lie over each other, or in any order, as strides allow them.
TEST_F(XlaRecorder, AnyStridesAreRead) {
  const auto numbers = rng_.normals(40);
  const Tensor flat = matrix(1, 40, numbers);
  for (const int64_t stride : {0, 1, 3, 5, 9}) {
    Tensor view = flat.slice(1, 2, 5);
    view.shape[0] = 4;
    view.stride[0] = stride;
    const Tensor out = matrix(4, 5);
    copy(view, out);
    std::vector<float> want;
    for (int64_t i = 0; i < 20; ++i)
      want.push_back(numbers[static_cast<size_t>(2 + i / 5 * stride + i % 5)]);
    EXPECT_TRUE(same_bits(values(out), want)) << stride;
  }
}

TEST_F(XlaRecorder, SlotsOfAState) {
  const auto numbers = rng_.normals(4 * 6);
  const Tensor whole = matrix(4, 6);
  Tensor state(whole.data, DType::kF32, {4, 2, 3});
  backend_.state_zero(state, 1);  // of memory that nobody has written
  EXPECT_TRUE(same_bits(values(state), std::vector<float>(24)));
  std::vector<float> want(24);
  const auto set = [&](int32_t slot) {
    const auto row = std::span(numbers).subspan(static_cast<size_t>(slot) * 6, 6);
    backend_.write(state.select(slot), std::as_bytes(row));
    std::ranges::copy(row, want.begin() + slot * 6);
  };
  set(2);
  set(0);
  backend_.state_copy(state, 2, 3);
  std::copy_n(want.begin() + 12, 6, want.begin() + 18);
  EXPECT_TRUE(same_bits(values(state), want));
  backend_.state_zero(state, 2);
  std::fill_n(want.begin() + 12, 6, 0.0f);
  const auto before = compiled();
  for (const int32_t slot : {0, 1, 2, 3}) {
    EXPECT_TRUE(same_bits(values(state.select(slot)),
                          std::span(want).subspan(static_cast<size_t>(slot) * 6, 6)));
    set(slot);
    backend_.state_copy(state, slot, (slot + 1) % 4);
    std::copy_n(want.begin() + slot * 6, 6, want.begin() + (slot + 1) % 4 * 6);
    backend_.state_zero(state, slot);
    std::fill_n(want.begin() + slot * 6, 6, 0.0f);
  }
  EXPECT_TRUE(same_bits(values(state), want));
  EXPECT_LE(compiled(), before + 2) << "a program for each slot";
}

// Lengths within a size, values and addresses do not matter, shapes and options do.
TEST_F(XlaRecorder, CompilesForShapesOnly) {
  const auto norm = [&](int64_t rows, float eps) {
    RmsNormArgs args;
    args.x = matrix(rows, 8, rng_.normals(rows * 8));
    args.out = matrix(rows, 8);
    args.eps = eps;
    backend_.rms_norm(args);
    return values(args.out);
  };
  norm(12, 1e-5f);
  // An array of 12 rows is an argument of that shape; what operations leave behind is padded.
  const auto before = compiled();
  norm(12, 1e-5f);
  EXPECT_EQ(compiled(), before);
  norm(12, 1e-6f);
  EXPECT_EQ(compiled(), before + 1);
  const Tensor table = matrix(20, 8, rng_.normals(160)), out = matrix(32, 8);
  const auto rows = [&](int64_t n) {
    const std::vector<int32_t> ids(static_cast<size_t>(n), 3);
    backend_.embedding({table, ids, out.slice(0, 0, n)});
    RmsNormArgs args;
    args.x = args.out = out.slice(0, 0, n);
    backend_.rms_norm(args);
    backend_.synchronize();
  };
  rows(17);
  const auto padded = compiled();
  rows(31);
  rows(20);
  EXPECT_EQ(compiled(), padded);
}

// What is freed before it is read is not run; what it was made from may be gone as well.
TEST_F(XlaRecorder, FreedBuffersAreForgotten) {
  const auto numbers = rng_.normals(12);
  const Tensor kept = matrix(3, 4);
  {
    const Buffer source = backend_.allocate(12 * sizeof(float));
    const Buffer dropped = backend_.allocate(12 * sizeof(float));
    const Tensor from(source.data(), DType::kF32, {3, 4}), to(dropped.data(), DType::kF32, {3, 4});
    backend_.write(from, std::as_bytes(std::span(numbers)));
    copy(from, kept);
    copy(kept, to);
  }
  EXPECT_TRUE(same_bits(values(kept), numbers));
  // Buffers that outlive their backend.
  Buffer late;
  {
    XlaBackend other(make_interpreter());
    late = other.allocate(16);
    other.write(Tensor(late.data(), DType::kF32, {4}), std::as_bytes(std::span(numbers).first(4)));
  }
}

TEST_F(XlaRecorder, RefusesWhatItCannotHold) {
  float host[4] = {};
  const Tensor foreign(host, DType::kF32, {1, 4});
  EXPECT_THROW(values(foreign), Error);
  const Tensor inside = matrix(2, 4);
  Tensor outside = inside;
  outside.offset = 4;
  EXPECT_THROW(values(outside), Error);
}

// Shorter and shorter prompts write over the front of what longer ones left.
TEST_F(XlaRecorder, ManyOverlappingWritesKeepTheEnds) {
  const Tensor table = matrix(20, 4, rng_.normals(80)), out = matrix(20, 4);
  for (int64_t n = 20; n >= 1; --n) {
    const std::vector<int32_t> ids(static_cast<size_t>(n), static_cast<int32_t>(n - 1));
    backend_.embedding({table, ids, out.slice(0, 0, n)});
    backend_.synchronize();
  }
  EXPECT_TRUE(same_bits(values(out), values(table)));
}

}  // namespace
}  // namespace adder::xla
