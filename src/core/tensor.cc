#include "core/tensor.h"

#include <fmt/ranges.h>

#include <span>

#include "core/error.h"

namespace adder {

Tensor::Tensor(void* memory, DType type, std::initializer_list<int64_t> dims)
    : data(memory), dtype(type), rank(static_cast<int>(dims.size())) {
  ADDER_CHECK(rank <= kMaxRank, "tensor: expected at most {} axes, got {}", kMaxRank, rank);
  int axis = 0;
  for (int64_t d : dims) shape[static_cast<size_t>(axis++)] = d;
  int64_t step = 1;
  for (axis = rank - 1; axis >= 0; --axis) {
    stride[static_cast<size_t>(axis)] = step;
    step *= shape[static_cast<size_t>(axis)];
  }
}

int64_t Tensor::size() const {
  int64_t n = 1;
  for (int axis = 0; axis < rank; ++axis) n *= dim(axis);
  return n;
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  if (layout != TensorLayout::kStrided) return false;
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (dim(axis) != 1 && stride[static_cast<size_t>(axis)] != step) return false;
    step *= dim(axis);
  }
  return true;
}

bool Tensor::has_unit_inner_stride() const {
  return layout == TensorLayout::kStrided &&
         (rank == 0 || dim(rank - 1) <= 1 || stride[static_cast<size_t>(rank - 1)] == 1);
}

namespace {

bool whole_blocks(DType dtype, int64_t elements) {
  return !is_quantized(dtype) || elements % block_shape(dtype).elements == 0;
}

}  // namespace

Tensor Tensor::slice(int axis, int64_t begin, int64_t length) const {
  ADDER_CHECK(layout == TensorLayout::kStrided, "slice: expected a strided tensor, got packed {}",
              describe());
  ADDER_CHECK(axis >= 0 && axis < rank && begin >= 0 && length >= 0 && begin + length <= dim(axis),
              "slice: expected a range inside axis {} of {}, got [{}, {})", axis, describe(), begin,
              begin + length);
  Tensor t = *this;
  t.offset += begin * stride[static_cast<size_t>(axis)];
  t.shape[static_cast<size_t>(axis)] = length;
  ADDER_CHECK(whole_blocks(dtype, t.offset) && (axis + 1 < rank || whole_blocks(dtype, length)),
              "slice: expected whole blocks of {} of axis {} of {}, got [{}, {})",
              block_shape(dtype).elements, axis, describe(), begin, begin + length);
  return t;
}

Tensor Tensor::split_last(int64_t a, int64_t b) const {
  ADDER_CHECK(rank >= 1 && rank < kMaxRank && dim(rank - 1) == a * b && has_unit_inner_stride() &&
                  whole_blocks(dtype, b),
              "split_last: expected a last axis of {} * {}, got {}", a, b, describe());
  Tensor t = *this;
  t.rank = rank + 1;
  t.shape[static_cast<size_t>(rank - 1)] = a;
  t.stride[static_cast<size_t>(rank - 1)] = b;
  t.shape[static_cast<size_t>(rank)] = b;
  t.stride[static_cast<size_t>(rank)] = 1;
  return t;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> dims) const {
  Tensor t(data, dtype, dims);
  t.offset = offset;
  ADDER_CHECK(is_contiguous() && t.size() == size() &&
                  (t.rank == 0 || whole_blocks(dtype, t.dim(t.rank - 1))),
              "reshape: expected {} contiguous elements, got {}", t.size(), describe());
  return t;
}

Tensor Tensor::select(int64_t index) const {
  Tensor t = slice(0, index, 1);
  t.rank = rank - 1;
  for (size_t axis = 0; axis + 1 < kMaxRank; ++axis) {
    t.shape[axis] = t.shape[axis + 1];
    t.stride[axis] = t.stride[axis + 1];
  }
  return t;
}

std::string Tensor::describe() const {
  return fmt::format("({}) {}", fmt::join(std::span(shape.data(), static_cast<size_t>(rank)), ", "),
                     dtype_name(dtype));
}

}  // namespace adder
