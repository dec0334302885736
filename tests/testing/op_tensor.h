// Tensors in a backend's memory, laid out to provoke mistakes: misaligned starts, gaps between rows
// that hold NaN, and behind the end either a guard or a page that may not be touched.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <vector>

#include "kernels/backend.h"

namespace adder::testing {

struct Layout {
  int64_t lead = 0;  // elements (blocks) before the first: the start is misaligned by as many
  int64_t gap = 0;   // elements (blocks) between neighbouring rows
  bool tight =
      false;  // ends where a page ends, and the next one is protected: a step over is fatal
};
inline constexpr Layout kPacked{};
inline constexpr Layout kOdd{.lead = 3, .gap = 5};
inline constexpr Layout kTight{.lead = 0, .gap = 1, .tight = true};
inline constexpr Layout kLayouts[] = {kPacked, kOdd, kTight};

class OpTensor {
 public:
  // Not given.
  OpTensor() = default;

  // Element values in row-major order (of a block format: its bytes); an empty vector leaves the
  // tensor full of NaN.
  template <typename T>
  OpTensor(Backend& backend, DType dtype, const std::vector<int64_t>& dims, const Layout& layout,
           const std::vector<T>& values)
      : backend_(&backend) {
    view_.dtype = dtype;
    view_.rank = static_cast<int>(dims.size());
    const BlockShape block = block_shape(dtype);
    const int64_t lead = layout.lead * block.elements;
    int64_t extent = block.elements;  // elements from the first to one behind the last
    int64_t step = 1;
    for (size_t axis = dims.size(); axis-- > 0;) {
      view_.shape[axis] = dims[axis];
      view_.stride[axis] = step;
      // Beyond the inner axis; an inner axis of n elements reaches n - 1 of its own blocks.
      if (dims[axis] > 0) extent += (dims[axis] - (step == 1 ? block.elements : 1)) * step;
      step = step * dims[axis] + layout.gap * block.elements;
    }
    constexpr int64_t kGuard = 64;
    const int64_t total = lead + extent + (layout.tight ? 0 : kGuard * block.elements);
    view_.offset = lead;
    const size_t bytes = row_bytes(dtype, total);
    const size_t pages = (bytes + kPage - 1) / kPage * kPage;
    buffer_ = backend.allocate(layout.tight ? pages + kPage : bytes);
    auto* start = static_cast<std::byte*>(buffer_.data()) + (layout.tight ? pages - bytes : 0);
    view_.data = start;
    whole_ = Tensor(start, dtype, {total});
    image_.resize(bytes);
    for (size_t i = 0; i < image_.size(); ++i) image_[i] = kPoison[i % 2];
    if (!values.empty()) {
      EXPECT_EQ(values.size() * sizeof(T), row_bytes(dtype, view_.size()));
      const auto* next = reinterpret_cast<const std::byte*>(values.data());
      for_each_row([&](int64_t begin, int64_t count) {
        std::memcpy(image_.data() + row_bytes(dtype, begin), next, row_bytes(dtype, count));
        next += row_bytes(dtype, count);
      });
    }
    backend.write(whole_, image_);
    // A refusal is fine: the memory of a device cannot be protected.
    if (layout.tight) ::mprotect(start + bytes, kPage, PROT_NONE);
  }

  OpTensor(Backend& backend, const std::vector<int64_t>& dims, const Layout& layout,
           const std::vector<float>& values)
      : OpTensor(backend, DType::kF32, dims, layout, values) {}

  const Tensor& view() const { return view_; }

  // The values now. Also sees to it that nothing around them was written.
  template <typename T = float>
  std::vector<T> read() {
    std::vector<std::byte> now(image_.size());
    backend_->read(whole_, now);
    std::vector<T> values;
    values.reserve(static_cast<size_t>(view_.size()));
    for_each_row([&](int64_t begin, int64_t count) {
      const size_t at = static_cast<size_t>(begin) * sizeof(T);
      const size_t bytes = static_cast<size_t>(count) * sizeof(T);
      const size_t old = values.size();
      values.resize(old + static_cast<size_t>(count));
      if (count == 0) return;
      std::memcpy(values.data() + old, now.data() + at, bytes);
      std::memcpy(now.data() + at, image_.data() + at, bytes);
    });
    EXPECT_TRUE(now == image_) << "memory around a tensor of " << view_.describe()
                               << " was written";
    return values;
  }

 private:
  static constexpr size_t kPage = 4096;
  // As bfloat16, float16 and (twice) float32 this is NaN.
  static constexpr std::byte kPoison[2] = {std::byte{0xdd}, std::byte{0x7f}};

  template <typename F>
  void for_each_row(F&& f) const {
    if (view_.size() == 0) return;
    const int inner = view_.rank - 1;
    std::array<int64_t, Tensor::kMaxRank> index{};
    for (;;) {
      int64_t begin = view_.offset;
      for (int axis = 0; axis < inner; ++axis)
        begin += index[static_cast<size_t>(axis)] * view_.stride[static_cast<size_t>(axis)];
      f(begin, view_.dim(inner));
      int axis = inner - 1;
      while (axis >= 0 && ++index[static_cast<size_t>(axis)] == view_.dim(axis))
        index[static_cast<size_t>(axis--)] = 0;
      if (axis < 0) return;
    }
  }

  Backend* backend_ = nullptr;
  Buffer buffer_;
  Tensor view_, whole_;
  std::vector<std::byte> image_;  // what was written at first, padding included
};

}  // namespace adder::testing
