// Between a user's arrays and the packed float32 tiles that the backends take.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/array_view.h"
#include "ops/scratch.h"

namespace adder::ops {

// Element (r, c) of a real (rows, cols) array to out[r * cols + c], as float32.
void gather(const ArrayView& from, float* out, int64_t out_row);
// The reverse, rounded to nearest even in the array's dtype.
void scatter(const float* in, int64_t in_row, const ArrayView& to);

// One number of a real array, or of a complex one its real part.
float load_float(const std::byte* address, DType dtype);
void store_float(float value, std::byte* address, DType dtype);
// Entry i of a vector of integers.
int64_t load_integer(const ArrayView& array, int64_t i);

// True unless every number of a real array is at most 0; also for NaN.
bool any_above_zero(const ArrayView& array);

// Bytes move as they are; both arrays have the same shape and dtype.
void copy_exact(const ArrayView& from, const ArrayView& to);

// A (rows, cols) array as a backend's operand: the array itself where it is float32 with unit
// stride on its last axis, else a copy at `scratch` (rows * cols floats). Not given: a null tensor.
Tensor load_rows(const ArrayView& from, float* scratch);
// The same for (rows, heads, headdim).
Tensor load_heads(const ArrayView& from, float* scratch);
// A vector, always copied.
Tensor load_vector(const ArrayView& from, float* scratch);

// Where a backend writes what belongs into `to`: there, or at `scratch`. flush() moves the latter.
Tensor output_rows(const ArrayView& to, float* scratch);
Tensor output_heads(const ArrayView& to, float* scratch);
void flush(const Tensor& written, const ArrayView& to);
// Zero in every element of an array of 2 or 3 axes.
void fill_zero(const ArrayView& to);

}  // namespace adder::ops
