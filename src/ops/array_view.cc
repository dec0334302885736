#include "ops/array_view.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace adder::ops {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

}  // namespace

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
              user_dtype_name(array.dtype, array.is_complex));
}

void check_integer(std::string_view op, std::string_view name, const ArrayView& array) {
  ADDER_CHECK((array.dtype == DType::kI32 || array.dtype == DType::kI64) && !array.is_complex,
              "{}: {}: expected int32 or int64, got {}", op, name,
              user_dtype_name(array.dtype, array.is_complex));
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
