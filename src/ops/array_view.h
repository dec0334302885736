// Checks of users' arrays (core/array_view.h).
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/array_view.h"

namespace adder::ops {

using adder::ArrayView;

// Checks of a user's arguments: Error(kBadInput) that names the operation, the argument, what was
// expected and what was got.
void check_shape(std::string_view op, std::string_view name, const ArrayView& array,
                 std::initializer_list<int64_t> want);
void check_rank(std::string_view op, std::string_view name, const ArrayView& array, int rank);
// Real numbers of a floating dtype; with allow_complex also complex ones.
void check_float(std::string_view op, std::string_view name, const ArrayView& array,
                 bool allow_complex = false);
void check_integer(std::string_view op, std::string_view name, const ArrayView& array);
// An array that is written: no two elements may share memory. Refuses also strides that interleave
// axes without sharing anything, which no slicing or reordering of an ordinary array gives.
void check_output(std::string_view op, std::string_view name, const ArrayView& array);
// The three checks of most operands in one: shape, and a real floating dtype.
void check_operand(std::string_view op, std::string_view name, const ArrayView& array,
                   std::initializer_list<int64_t> want);

}  // namespace adder::ops
