// Operations that move elements, and products.
#include <algorithm>
#include <utility>

#include "backends/xla/builder.h"
#include "backends/xla/builder_checks.h"

namespace adder::xla {

Value Builder::iota(Type type, int64_t axis) {
  builder_expect_element(Opcode::kIota, kGroupF32 | kGroupInt, type);
  builder_expect_axis(Opcode::kIota, axis, type.shape.size());
  return append({.code = Opcode::kIota, .axis = axis}, std::move(type));
}

Value Builder::reshape(Value v, std::vector<int64_t> shape) {
  Type result{type(v).element, std::move(shape)};
  if (result == type(v)) return v;
  builder_expect(result.size() == type(v).size(), Opcode::kReshape,
                 "expected the size of {}, got {}", type_text(type(v)), type_text(result));
  return append({.code = Opcode::kReshape, .operands = {v}}, std::move(result));
}

Value Builder::convert(Value v, Element element) {
  if (type(v).element == element) return v;
  return append({.code = Opcode::kConvert, .operands = {v}}, Type{element, type(v).shape});
}

Value Builder::bitcast(Value v, Element element) {
  Type result = type(v);
  if (result.element == element) return v;
  const auto from = static_cast<int64_t>(element_bytes(result.element));
  const auto to = static_cast<int64_t>(element_bytes(element));
  builder_expect(result.element != Element::kPred && element != Element::kPred,
                 Opcode::kBitcastConvert, "expected numbers, got {} to {}", type_text(result),
                 element_name(element));
  if (from > to) result.shape.push_back(from / to);
  if (from < to) {
    builder_expect(!result.shape.empty() && result.shape.back() == to / from,
                   Opcode::kBitcastConvert, "to {}: expected a last axis of {}, got {}",
                   element_name(element), to / from, type_text(result));
    result.shape.pop_back();
  }
  result.element = element;
  return append({.code = Opcode::kBitcastConvert, .operands = {v}}, std::move(result));
}

Value Builder::transpose(Value v, std::vector<int64_t> permutation) {
  const Type& from = type(v);
  builder_expect_count(Opcode::kTranspose, "permutation", from.shape.size(), permutation.size());
  builder_mark_axes(Opcode::kTranspose, permutation, from.shape.size());
  if (std::ranges::is_sorted(permutation)) return v;
  Type result{from.element, {}};
  for (const int64_t axis : permutation) result.shape.push_back(from.shape[axis]);
  return append({.code = Opcode::kTranspose, .operands = {v}, .dims = std::move(permutation)},
                std::move(result));
}

Value Builder::broadcast(Value v, std::vector<int64_t> shape, std::vector<int64_t> axes) {
  constexpr Opcode kCode = Opcode::kBroadcastInDim;
  const Type& from = type(v);
  builder_expect_count(kCode, "axes", from.shape.size(), axes.size());
  builder_mark_axes(kCode, axes, shape.size());
  for (size_t i = 0; i < axes.size(); ++i)
    builder_expect(from.shape[i] == 1 || from.shape[i] == shape[axes[i]], kCode,
                   "axis {}: expected 1 or {}, got {}", i, shape[axes[i]], from.shape[i]);
  Type result{from.element, std::move(shape)};
  if (result == from && std::ranges::is_sorted(axes)) return v;
  return append({.code = kCode, .operands = {v}, .dims = std::move(axes)}, std::move(result));
}

Value Builder::slice(Value v, std::vector<int64_t> starts, std::vector<int64_t> limits) {
  const Type& from = type(v);
  builder_expect_count(Opcode::kSlice, "starts", from.shape.size(), starts.size());
  builder_expect_count(Opcode::kSlice, "limits", from.shape.size(), limits.size());
  Type result{from.element, {}};
  for (size_t i = 0; i < starts.size(); ++i) {
    builder_expect(0 <= starts[i] && starts[i] <= limits[i] && limits[i] <= from.shape[i],
                   Opcode::kSlice, "axis {}: expected a range within {}, got [{}, {})", i,
                   from.shape[i], starts[i], limits[i]);
    result.shape.push_back(limits[i] - starts[i]);
  }
  if (result == from) return v;
  return append({.code = Opcode::kSlice,
                 .operands = {v},
                 .starts = std::move(starts),
                 .limits = std::move(limits)},
                std::move(result));
}

Value Builder::slice_axis(Value v, int64_t axis, int64_t start, int64_t length) {
  std::vector<int64_t> starts(type(v).shape.size()), limits = type(v).shape;
  builder_expect_axis(Opcode::kSlice, axis, limits.size());
  starts[axis] = start;
  limits[axis] = start + length;
  return slice(v, std::move(starts), std::move(limits));
}

Value Builder::dynamic_slice(Value v, std::vector<Value> starts, std::vector<int64_t> sizes) {
  constexpr Opcode kCode = Opcode::kDynamicSlice;
  const Type& from = type(v);
  builder_expect_count(kCode, "starts", from.shape.size(), starts.size());
  builder_expect_count(kCode, "sizes", from.shape.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    builder_expect_type(kCode, "start", {Element::kI32, {}}, type(starts[i]));
    builder_expect(0 <= sizes[i] && sizes[i] <= from.shape[i], kCode,
                   "axis {}: expected a size of at most {}, got {}", i, from.shape[i], sizes[i]);
  }
  Type result{from.element, sizes};
  starts.insert(starts.begin(), v);
  return append({.code = kCode, .operands = std::move(starts), .dims = std::move(sizes)},
                std::move(result));
}

Value Builder::dynamic_update(Value v, Value update, std::vector<Value> starts) {
  constexpr Opcode kCode = Opcode::kDynamicUpdateSlice;
  const Type &from = type(v), &part = type(update);
  builder_expect(from.element == part.element && from.shape.size() == part.shape.size(), kCode,
                 "expected an update of the element and rank of {}, got {}", type_text(from),
                 type_text(part));
  builder_expect_count(kCode, "starts", from.shape.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    builder_expect_type(kCode, "start", {Element::kI32, {}}, type(starts[i]));
    builder_expect(part.shape[i] <= from.shape[i], kCode,
                   "axis {}: expected an update of at most {}, got {}", i, from.shape[i],
                   part.shape[i]);
  }
  starts.insert(starts.begin(), {v, update});
  return append({.code = kCode, .operands = std::move(starts)}, Type(from));
}

Value Builder::concatenate(std::vector<Value> parts, int64_t axis) {
  constexpr Opcode kCode = Opcode::kConcatenate;
  builder_expect(!parts.empty(), kCode, "expected at least one part, got none");
  Type result = type(parts.front());
  builder_expect_axis(kCode, axis, result.shape.size());
  result.shape[axis] = 0;
  for (const Value part : parts) {
    Type expected = result;
    if (std::ssize(type(part).shape) > axis) expected.shape[axis] = type(part).shape[axis];
    builder_expect_type(kCode, "part", expected, type(part));
    result.shape[axis] += expected.shape[axis];
  }
  return append({.code = kCode, .operands = std::move(parts), .axis = axis}, std::move(result));
}

Value Builder::pad(Value v, Value scalar, std::vector<int64_t> low, std::vector<int64_t> high) {
  Type result = type(v);
  builder_expect_type(Opcode::kPad, "scalar", {result.element, {}}, type(scalar));
  builder_expect_count(Opcode::kPad, "low", result.shape.size(), low.size());
  builder_expect_count(Opcode::kPad, "high", result.shape.size(), high.size());
  for (size_t i = 0; i < low.size(); ++i) {
    builder_expect(low[i] >= 0 && high[i] >= 0, Opcode::kPad,
                   "axis {}: expected no negative padding, got {} and {}", i, low[i], high[i]);
    result.shape[i] += low[i] + high[i];
  }
  return append({.code = Opcode::kPad,
                 .operands = {v, scalar},
                 .starts = std::move(low),
                 .limits = std::move(high)},
                std::move(result));
}

Value Builder::gather_rows(Value rows, Value indices) {
  constexpr Opcode kCode = Opcode::kGatherRows;
  Type result = type(rows);
  const Type& at = type(indices);
  builder_expect(!result.shape.empty() && result.shape[0] > 0, kCode, "expected rows, got {}",
                 type_text(result));
  builder_expect(at.element == Element::kI32 && at.shape.size() == 1, kCode,
                 "indices: expected i32 of rank 1, got {}", type_text(at));
  result.shape[0] = at.shape[0];
  return append({.code = kCode, .operands = {rows, indices}}, std::move(result));
}

Value Builder::dot(Value lhs, Value rhs, DotDims dims) {
  constexpr Opcode kCode = Opcode::kDotGeneral;
  const Type &a = type(lhs), &b = type(rhs);
  builder_expect_element(kCode, kGroupF32 | kGroupF16, a);
  builder_expect(a.element == b.element, kCode, "rhs: expected elements of {}, got {}",
                 type_text(a), type_text(b));
  builder_expect_count(kCode, "rhs batch axes", dims.lhs_batch.size(), dims.rhs_batch.size());
  builder_expect_count(kCode, "rhs contracted axes", dims.lhs_contract.size(),
                       dims.rhs_contract.size());
  std::vector<int64_t> lhs_axes = dims.lhs_batch, rhs_axes = dims.rhs_batch;
  lhs_axes.insert(lhs_axes.end(), dims.lhs_contract.begin(), dims.lhs_contract.end());
  rhs_axes.insert(rhs_axes.end(), dims.rhs_contract.begin(), dims.rhs_contract.end());
  const std::vector<bool> lhs_used = builder_mark_axes(kCode, lhs_axes, a.shape.size());
  const std::vector<bool> rhs_used = builder_mark_axes(kCode, rhs_axes, b.shape.size());
  for (size_t i = 0; i < lhs_axes.size(); ++i)
    builder_expect(a.shape[lhs_axes[i]] == b.shape[rhs_axes[i]], kCode,
                   "axis {} of rhs: expected {} as axis {} of lhs, got {}", rhs_axes[i],
                   a.shape[lhs_axes[i]], lhs_axes[i], b.shape[rhs_axes[i]]);
  Type result{Element::kF32, {}};
  for (const int64_t axis : dims.lhs_batch) result.shape.push_back(a.shape[axis]);
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (!lhs_used[i]) result.shape.push_back(a.shape[i]);
  for (size_t i = 0; i < b.shape.size(); ++i)
    if (!rhs_used[i]) result.shape.push_back(b.shape[i]);
  const Precision precision =
      a.element == Element::kF32 ? Precision::kHighest : Precision::kDefault;
  return append(
      {.code = kCode, .operands = {lhs, rhs}, .dot = std::move(dims), .precision = precision},
      std::move(result));
}

}  // namespace adder::xla
