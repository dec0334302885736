#include "core/array_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>

namespace adder {

std::string_view user_dtype_name(DType dtype, bool is_complex) {
  switch (dtype) {
    case DType::kF32:
      return is_complex ? "complex64" : "float32";
    case DType::kF64:
      return is_complex ? "complex128" : "float64";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    default:
      return dtype_name(dtype);
  }
}

ArrayView::ArrayView(void* memory, DType type, std::initializer_list<int64_t> dims)
    : data(static_cast<std::byte*>(memory)),
      dtype(type),
      given(true),
      rank(static_cast<int>(dims.size())) {
  std::copy(dims.begin(), dims.end(), shape.begin());
  int64_t bytes = item_bytes();
  for (size_t axis = dims.size(); axis-- > 0;) {
    stride[axis] = bytes;
    bytes *= shape[axis];
  }
}

int64_t ArrayView::item_bytes() const {
  return static_cast<int64_t>(dtype_size(dtype)) * (is_complex ? 2 : 1);
}

int64_t ArrayView::size() const {
  int64_t count = 1;
  bool too_many = false;
  for (int axis = 0; axis < rank; ++axis) {
    if (dim(axis) == 0) return 0;
    too_many |= __builtin_mul_overflow(count, dim(axis), &count);
  }
  return too_many ? std::numeric_limits<int64_t>::max() : count;
}

ArrayView ArrayView::select(int axis, int64_t index) const {
  ArrayView view = *this;
  // An empty array has no address to move.
  if (data != nullptr) view.data += index * step(axis);
  for (int i = axis; i + 1 < rank; ++i) {
    view.shape[static_cast<size_t>(i)] = dim(i + 1);
    view.stride[static_cast<size_t>(i)] = step(i + 1);
  }
  --view.rank;
  return view;
}

ArrayView ArrayView::slice(int axis, int64_t begin, int64_t length) const {
  ArrayView view = *this;
  if (data != nullptr) view.data += begin * step(axis);
  view.shape[static_cast<size_t>(axis)] = length;
  return view;
}

ArrayView ArrayView::permute(std::initializer_list<int> axes) const {
  ArrayView view = *this;
  size_t to = 0;
  for (int axis : axes) {
    view.shape[to] = dim(axis);
    view.stride[to] = step(axis);
    ++to;
  }
  return view;
}

ArrayView ArrayView::split(int axis, int64_t a, int64_t b) const {
  ArrayView view = insert_axis(axis, a);
  view.stride[static_cast<size_t>(axis)] = b * step(axis);
  view.shape[static_cast<size_t>(axis) + 1] = b;
  return view;
}

ArrayView ArrayView::insert_axis(int axis, int64_t size) const {
  ArrayView view = *this;
  for (int i = rank; i > axis; --i) {
    view.shape[static_cast<size_t>(i)] = dim(i - 1);
    view.stride[static_cast<size_t>(i)] = step(i - 1);
  }
  view.shape[static_cast<size_t>(axis)] = size;
  view.stride[static_cast<size_t>(axis)] = 0;
  ++view.rank;
  return view;
}

std::string ArrayView::describe() const {
  if (!given) return "None";
  return fmt::format("{} {}", shape_text(shape.data(), rank), user_dtype_name(dtype, is_complex));
}

std::string shape_text(const int64_t* shape, int rank) {
  const std::span<const int64_t> dims(shape, static_cast<size_t>(rank));
  return fmt::format("({}{})", fmt::join(dims, ", "), rank == 1 ? "," : "");
}

}  // namespace adder
