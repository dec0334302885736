// A non-owning handle to a strided array.
//
// `data` is opaque to everybody but the backend that made it: an address for the CPU, a device
// address or a node of a recorded program for others. Code above the backends slices and reshapes
// handles and never looks inside.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"

namespace adder {

// kStrided: shape and strides tell where an element lies. kPacked: only the backend knows; such a
// tensor is used whole.
enum class TensorLayout : uint8_t { kStrided, kPacked };

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;  // null: "not given", for optional operands
  int64_t offset = 0;    // in elements
  DType dtype = DType::kF32;
  TensorLayout layout = TensorLayout::kStrided;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};  // in elements

  Tensor() = default;
  // A contiguous (row-major) tensor.
  Tensor(void* memory, DType type, std::initializer_list<int64_t> dims);

  explicit operator bool() const { return data != nullptr; }
  int64_t dim(int axis) const { return shape[static_cast<size_t>(axis)]; }
  int64_t size() const;
  bool is_contiguous() const;
  // True when the last axis has stride 1, which is all that the operations ask for.
  bool has_unit_inner_stride() const;

  // Elements [begin, begin + length) of one axis. A block format is cut between blocks only.
  Tensor slice(int axis, int64_t begin, int64_t length) const;
  // Splits the last axis (size a * b, unit stride) into (a, b).
  Tensor split_last(int64_t a, int64_t b) const;
  // The same contiguous memory under another shape of equal size.
  Tensor reshape(std::initializer_list<int64_t> dims) const;
  // One entry of the first axis, with that axis removed.
  Tensor select(int64_t index) const;

  // Address of element 0. Only a backend that addresses host memory may call this.
  template <typename T>
  T* ptr() const {
    return static_cast<T*>(data) + offset;
  }
  // The same for any dtype: address of element `at` of the memory, counted from element 0. In a
  // block format it is the first of its block.
  std::byte* bytes(int64_t at = 0) const {
    return static_cast<std::byte*>(data) + row_bytes(dtype, offset + at);
  }

  std::string describe() const;  // "(4, 768) F32", for messages
};

}  // namespace adder
