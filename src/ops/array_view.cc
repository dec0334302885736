#include "ops/array_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <span>

#include "core/error.h"

namespace adder::ops {
namespace {

// The names that NumPy and PyTorch give.
std::string_view user_name(DType dtype, bool is_complex) {
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

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

}  // namespace

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
  return fmt::format("{} {}", shape_text(shape.data(), rank), user_name(dtype, is_complex));
}

std::string shape_text(const int64_t* shape, int rank) {
  const std::span<const int64_t> dims(shape, static_cast<size_t>(rank));
  return fmt::format("({}{})", fmt::join(dims, ", "), rank == 1 ? "," : "");
}

void check_shape(std::string_view op, std::string_view name, const ArrayView& array,
                 std::initializer_list<int64_t> want) {
  const int rank = static_cast<int>(want.size());
  if (array.given && array.rank == rank &&
      std::equal(want.begin(), want.end(), array.shape.begin()))
    return;
  const std::string expected = shape_text(want.begin(), rank);
  ADDER_CHECK(array.given, "{}: {}: expected shape {}, got None", op, name, expected);
  bad_input("{}: {}: expected shape {}, got {}", op, name, expected,
            shape_text(array.shape.data(), array.rank));
}

void check_rank(std::string_view op, std::string_view name, const ArrayView& array, int rank) {
  ADDER_CHECK(array.given && array.rank == rank, "{}: {}: expected {} axes, got {}", op, name, rank,
              array.describe());
}

void check_float(std::string_view op, std::string_view name, const ArrayView& array,
                 bool allow_complex) {
  ADDER_CHECK(is_float(array.dtype) && (allow_complex || !array.is_complex),
              "{}: {}: expected float32, float16, bfloat16{}, got {}", op, name,
              allow_complex ? ", float64 or complex64" : " or float64",
              user_name(array.dtype, array.is_complex));
}

void check_integer(std::string_view op, std::string_view name, const ArrayView& array) {
  ADDER_CHECK((array.dtype == DType::kI32 || array.dtype == DType::kI64) && !array.is_complex,
              "{}: {}: expected int32 or int64, got {}", op, name,
              user_name(array.dtype, array.is_complex));
}

void check_output(std::string_view op, std::string_view name, const ArrayView& array) {
  if (array.empty()) return;
  const auto distance = [&](int axis) { return std::abs(array.step(axis)); };
  for (int axis = 0; axis < array.rank; ++axis) {
    if (array.dim(axis) == 1) continue;
    // Its entries lie farther apart than all that is within one of them.
    int64_t within = array.item_bytes();
    for (int inner = 0; inner < array.rank; ++inner) {
      const bool inside =
          distance(inner) < distance(axis) || (distance(inner) == distance(axis) && inner < axis);
      if (inside) within += (array.dim(inner) - 1) * distance(inner);
    }
    ADDER_CHECK(distance(axis) >= within,
                "{}: {}: expected memory of its own for every element, got a stride of {} bytes on "
                "axis {}",
                op, name, array.step(axis), axis);
  }
}

void check_operand(std::string_view op, std::string_view name, const ArrayView& array,
                   std::initializer_list<int64_t> want) {
  check_shape(op, name, array, want);
  check_float(op, name, array);
}

}  // namespace adder::ops
