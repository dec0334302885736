// Parts of values, and values from parts.
#include <algorithm>

#include "backends/xla/lower.h"
#include "core/error.h"

namespace adder::xla {
namespace {

Value values_zero(Builder& b, Element element) {
  return b.constant(element, 0);
}

// Cuts or fills up one axis.
Value values_resize(Builder& b, Value v, int64_t axis, int64_t length) {
  const Type type = b.type(v);
  const int64_t have = type.shape[static_cast<size_t>(axis)];
  if (have >= length) return b.slice_axis(v, axis, 0, length);
  std::vector<int64_t> low(type.shape.size()), high(type.shape.size());
  high[static_cast<size_t>(axis)] = length - have;
  return b.pad(v, values_zero(b, type.element), low, high);
}

// The elements of a strided view of a flat value. Where each axis' entries lie within the stride of
// the axis around it, rows are cut out level by level; else each element is looked up.
Value values_extract(const Lowering& l) {
  Builder& b = l.b;
  const auto n = l.attributes;
  const int64_t rows = n[0], offset = n[1], cols = n[4];
  std::vector<int64_t> dims = {n[2]}, strides = {n[3]};
  for (size_t i = 5; i < n.size(); i += 2) {
    dims.push_back(n[i]);
    strides.push_back(n[i + 1]);
  }
  if (dims[0] == 1) {
    dims.erase(dims.begin());
    strides.erase(strides.begin());
  }
  bool nested = dims.empty() || strides.back() == 1;
  int64_t extent = 1;  // of an entry of axis i
  for (size_t i = dims.size(); i-- > 0;) {
    nested = nested && extent <= strides[i];
    extent += (dims[i] - 1) * strides[i];
  }
  Value v = b.reshape(l.in[0], {b.type(l.in[0]).size()});
  const int64_t size = b.type(v).shape[0];
  if (nested) {
    v = b.slice_axis(v, 0, offset, size - offset);
    std::vector<int64_t> shape;
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto axis = static_cast<int64_t>(shape.size());
      v = values_resize(b, v, axis, dims[i] * strides[i]);
      shape.push_back(dims[i]);
      std::vector<int64_t> split = shape;
      split.push_back(strides[i]);
      v = b.reshape(v, split);
    }
    if (dims.empty()) v = b.slice_axis(v, 0, 0, 1);
  } else {
    const int64_t count = n[2] * cols;
    Value index = b.fill(b.constant(static_cast<int32_t>(offset)), dims);
    for (size_t i = 0; i < dims.size(); ++i)
      index = b.add(index, b.multiply(b.iota({Element::kI32, dims}, static_cast<int64_t>(i)),
                                      b.constant(static_cast<int32_t>(strides[i]))));
    v = b.gather_rows(b.reshape(v, {size, 1}), b.reshape(index, {count}));
  }
  return values_resize(b, b.reshape(v, {n[2], cols}), 0, rows);
}

}  // namespace

std::vector<Value> lower_values(TapeOp op, const Lowering& l) {
  Builder& b = l.b;
  const auto n = l.attributes;
  switch (op) {
    case TapeOp::kZeros:
      return {b.fill(values_zero(b, static_cast<Element>(n[0])), {n[1], n[2]})};
    case TapeOp::kResizeRows:
      return {values_resize(b, l.in[0], 0, n[0])};
    case TapeOp::kRectangle:
      return {b.slice(l.in[0], {n[0], n[2]}, {n[0] + n[1], n[2] + n[3]})};
    case TapeOp::kFlatten:
      return {b.reshape(b.slice_axis(l.in[0], 0, 0, n[0]), {1, n[1]})};
    case TapeOp::kExtract:
      return {values_extract(l)};
    case TapeOp::kSliceAt:
      return {b.dynamic_slice(l.in[0], {l.in[1], l.in[2]}, {n[0], n[1]})};
    case TapeOp::kUpdateAt:
      return {b.dynamic_update(l.in[0], l.in[1], {l.in[2], l.in[3]})};
    default:
      fail(ErrorCode::kInternal, "xla: no operation {} on values", static_cast<int>(op));
  }
}

}  // namespace adder::xla
