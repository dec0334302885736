// A user's array as it lies in memory: any strides, several dtypes, nothing owned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace adder {

// The memory is the host's or that of one device, which whoever has the view knows.
// Strides are in bytes, 64 bits wide, zero or negative where the caller wishes, and elements need
// no alignment: whatever NumPy and PyTorch can describe.
struct ArrayView {
  static constexpr int kMaxRank = 8;

  std::byte* data = nullptr;  // address of element 0; may be null when there are no elements
  DType dtype = DType::kF32;  // kF32, kF16, kBF16, kF64, kI32 or kI64
  bool is_complex = false;    // an element is a pair (real, imaginary) of dtype
  bool given = false;         // false: an optional operand that is absent
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  ArrayView() = default;
  // A contiguous (row-major) array.
  ArrayView(void* memory, DType type, std::initializer_list<int64_t> dims);

  // Also in device code:
  constexpr explicit operator bool() const { return given; }
  constexpr int64_t dim(int axis) const { return shape[static_cast<size_t>(axis)]; }
  constexpr int64_t step(int axis) const { return stride[static_cast<size_t>(axis)]; }
  int64_t item_bytes() const;
  int64_t size() const;  // the largest int64_t if there are more: axes of stride 0 cost no memory
  // Not there, or without elements.
  bool empty() const { return !given || size() == 0; }

  // One entry of an axis, with that axis removed.
  ArrayView select(int axis, int64_t index) const;
  // Elements [begin, begin + length) of an axis.
  ArrayView slice(int axis, int64_t begin, int64_t length) const;
  // The axes in another order; as many as there are.
  ArrayView permute(std::initializer_list<int> axes) const;
  // Axis `axis`, of size a * b, as two axes (a, b).
  ArrayView split(int axis, int64_t a, int64_t b) const;
  // With an axis of size 1, or of stride 0 and any size, before `axis`.
  ArrayView insert_axis(int axis, int64_t size = 1) const;

  std::string describe() const;  // "(2, 16, 128) float32", for messages
};

// "(2, 16)", and the names that NumPy and PyTorch give to dtypes.
std::string shape_text(const int64_t* shape, int rank);
std::string_view user_dtype_name(DType dtype, bool is_complex);

}  // namespace adder
