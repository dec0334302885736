// What the readers of arrays of each kind share: element types, and how a wrong one is named.
#pragma once

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <string_view>

#include "core/error.h"
#include "ops/array_view.h"

namespace adder::python {

struct ElementType {
  DType dtype;
  bool is_complex;
};

inline constexpr const char* kDTypes =
    "float32, float16, bfloat16, float64, complex64, int32 or int64";

[[noreturn]] inline void wrong_type(const char* op, const char* name, std::string_view expected,
                                    std::string_view got) {
  throw pybind11::type_error(fmt::format("{}: {}: expected {}, got {}", op, name, expected, got));
}

inline const char* type_name(pybind11::handle value) {
  return value.is_none() ? "None" : Py_TYPE(value.ptr())->tp_name;
}

inline void set_rank(ops::ArrayView* view, int64_t rank, const char* op, const char* name) {
  ADDER_CHECK(rank >= 0 && rank <= ops::ArrayView::kMaxRank,
              "{}: {}: expected at most {} axes, got {}", op, name, ops::ArrayView::kMaxRank, rank);
  view->rank = static_cast<int>(rank);
  view->given = true;
}

}  // namespace adder::python
