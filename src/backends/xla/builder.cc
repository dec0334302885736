#include "backends/xla/builder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace adder::xla {
namespace {

using Shape = std::vector<int64_t>;

template <typename... Args>
void builder_expect(bool holds, Opcode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds)
    fail(ErrorCode::kInternal, "xla builder: {}: {}", opcode_name(code),
         fmt::format(format, std::forward<Args>(args)...));
}

void builder_expect_type(Opcode code, std::string_view what, const Type& expected,
                         const Type& got) {
  if (expected != got)
    fail(ErrorCode::kInternal, "xla builder: {}: {}: expected {}, got {}", opcode_name(code), what,
         type_text(expected), type_text(got));
}

void builder_expect_axis(Opcode code, int64_t axis, size_t rank) {
  builder_expect(axis >= 0 && static_cast<size_t>(axis) < rank, code,
                 "expected an axis below {}, got {}", rank, axis);
}

void builder_expect_count(Opcode code, std::string_view what, size_t expected, size_t got) {
  builder_expect(expected == got, code, "{}: expected {}, got {}", what, expected, got);
}

// Which of axes 0 .. rank - 1 are named, each at most once.
std::vector<bool> builder_mark_axes(Opcode code, const Shape& axes, size_t rank) {
  std::vector<bool> marked(rank);
  for (const int64_t axis : axes) {
    builder_expect_axis(code, axis, rank);
    builder_expect(!marked[axis], code, "expected different axes, got {} twice", axis);
    marked[axis] = true;
  }
  return marked;
}

enum ElementGroup : unsigned { kGroupF32 = 1, kGroupF16 = 2, kGroupInt = 4, kGroupPred = 8 };

unsigned builder_group(Element element) {
  switch (element) {
    case Element::kF32:
      return kGroupF32;
    case Element::kF16:
    case Element::kBF16:
      return kGroupF16;
    case Element::kPred:
      return kGroupPred;
    default:
      return kGroupInt;
  }
}

void builder_expect_element(Opcode code, unsigned groups, const Type& got) {
  if (builder_group(got.element) & groups) return;
  std::string expected;
  const auto name = [&](unsigned group, std::string_view text) {
    if (groups & group) expected.append(expected.empty() ? "" : " or ").append(text);
  };
  name(kGroupF32, "f32");
  name(kGroupF16, "f16 or bf16");
  name(kGroupInt, "integers");
  name(kGroupPred, "i1");
  fail(ErrorCode::kInternal, "xla builder: {}: expected {}, got {}", opcode_name(code), expected,
       type_text(got));
}

unsigned builder_groups_of(Opcode code) {
  switch (code) {
    case Opcode::kAdd:
    case Opcode::kSubtract:
    case Opcode::kMultiply:
    case Opcode::kDivide:
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kNegate:
    case Opcode::kAbs:
      return kGroupF32 | kGroupInt;
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kNot:
      return kGroupInt | kGroupPred;
    case Opcode::kShiftLeft:
    case Opcode::kShiftRightLogical:
      return kGroupInt;
    case Opcode::kExponential:
    case Opcode::kLogPlusOne:
    case Opcode::kLog:
    case Opcode::kRsqrt:
    case Opcode::kSqrt:
    case Opcode::kFloor:
    case Opcode::kIsFinite:
      return kGroupF32;
    default:
      return 0;
  }
}

bool builder_is_unsigned(Element element) {
  return element == Element::kU32 || element == Element::kU64;
}

// The value that a reduction begins with, as the bits of one element.
uint64_t builder_neutral(Reducer reducer, Element element) {
  const bool is_float = element == Element::kF32;
  switch (reducer) {
    case Reducer::kAdd:
    case Reducer::kOr:
      return 0;
    case Reducer::kAnd:
      return element == Element::kPred ? 1 : ~uint64_t{0} >> (64 - 8 * element_bytes(element));
    case Reducer::kMaximum:
      if (is_float) return std::bit_cast<uint32_t>(-std::numeric_limits<float>::infinity());
      return builder_is_unsigned(element) ? 0 : uint64_t{1} << (8 * element_bytes(element) - 1);
    case Reducer::kMinimum: {
      if (is_float) return std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity());
      const uint64_t all = ~uint64_t{0} >> (64 - 8 * element_bytes(element));
      return builder_is_unsigned(element) ? all : all >> 1;
    }
  }
  fail(ErrorCode::kInternal, "xla builder: no reducer {}", static_cast<int>(reducer));
}

// Keeps a block open while its region is built.
class OpenBlock {
 public:
  OpenBlock(std::vector<Block*>& open, Block& block) : open_(open) { open_.push_back(&block); }
  ~OpenBlock() { open_.pop_back(); }
  OpenBlock(const OpenBlock&) = delete;
  OpenBlock& operator=(const OpenBlock&) = delete;

 private:
  std::vector<Block*>& open_;
};

}  // namespace

Builder::Builder(Program& program) : program_(program), open_{&program.main} {}

const Type& Builder::type(Value v) const {
  if (v >= program_.types.size())
    fail(ErrorCode::kInternal, "xla builder: expected a value below {}, got {}",
         program_.types.size(), v);
  return program_.types[v];
}

Block& Builder::block() {
  return *open_.back();
}

std::vector<Value> Builder::append(Op op, std::vector<Type> types) {
  for (Type& result : types) {
    op.results.push_back(static_cast<Value>(program_.types.size()));
    program_.types.push_back(std::move(result));
  }
  std::vector<Value> results = op.results;
  block().ops.push_back(std::move(op));
  return results;
}

Value Builder::append(Op op, Type type) {
  std::vector<Type> types;
  types.push_back(std::move(type));
  return append(std::move(op), std::move(types)).front();
}

Value Builder::argument(Type type) {
  if (open_.size() != 1) fail(ErrorCode::kInternal, "xla builder: an argument inside a region");
  const auto v = static_cast<Value>(program_.types.size());
  program_.types.push_back(std::move(type));
  program_.main.arguments.push_back(v);
  return v;
}

void Builder::result(Value v, int32_t donated_argument) {
  if (open_.size() != 1) fail(ErrorCode::kInternal, "xla builder: a result inside a region");
  const Type& got = type(v);
  if (donated_argument != -1) {
    const std::vector<Value>& arguments = program_.main.arguments;
    if (donated_argument < 0 || donated_argument >= std::ssize(arguments))
      fail(ErrorCode::kInternal, "xla builder: donated argument: expected one of {}, got {}",
           arguments.size(), donated_argument);
    const Type& expected = type(arguments[donated_argument]);
    if (expected != got)
      fail(ErrorCode::kInternal, "xla builder: result on donated argument {}: expected {}, got {}",
           donated_argument, type_text(expected), type_text(got));
    if (std::ranges::find(program_.donated, donated_argument) != program_.donated.end())
      fail(ErrorCode::kInternal, "xla builder: argument {} is donated twice", donated_argument);
  }
  program_.main.results.push_back(v);
  program_.donated.push_back(donated_argument);
}

Value Builder::constant(float value) {
  return constant(Element::kF32, std::bit_cast<uint32_t>(value));
}

Value Builder::constant(int32_t value) {
  return constant(Element::kI32, std::bit_cast<uint32_t>(value));
}

Value Builder::constant(Element element, uint64_t bits) {
  const size_t width = element == Element::kPred ? 1 : 8 * element_bytes(element);
  builder_expect(width == 64 || bits >> width == 0, Opcode::kConstant,
                 "expected the bits of one {}, got {:#x}", element_name(element), bits);
  return append({.code = Opcode::kConstant, .payload = bits}, Type{element, {}});
}

Value Builder::fill(Value scalar, Shape shape) {
  builder_expect_type(Opcode::kBroadcastInDim, "scalar", {type(scalar).element, {}}, type(scalar));
  return splat(scalar, shape);
}

Value Builder::splat(Value v, const Shape& shape) {
  return type(v).shape.empty() ? broadcast(v, shape, {}) : v;
}

Value Builder::iota(Type type, int64_t axis) {
  builder_expect_element(Opcode::kIota, kGroupF32 | kGroupInt, type);
  builder_expect_axis(Opcode::kIota, axis, type.shape.size());
  return append({.code = Opcode::kIota, .axis = axis}, std::move(type));
}

Value Builder::reshape(Value v, Shape shape) {
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

Value Builder::transpose(Value v, Shape permutation) {
  const Type& from = type(v);
  builder_expect_count(Opcode::kTranspose, "permutation", from.shape.size(), permutation.size());
  builder_mark_axes(Opcode::kTranspose, permutation, from.shape.size());
  if (std::ranges::is_sorted(permutation)) return v;
  Type result{from.element, {}};
  for (const int64_t axis : permutation) result.shape.push_back(from.shape[axis]);
  return append({.code = Opcode::kTranspose, .operands = {v}, .dims = std::move(permutation)},
                std::move(result));
}

Value Builder::broadcast(Value v, Shape shape, Shape axes) {
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

Value Builder::slice(Value v, Shape starts, Shape limits) {
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
  Shape starts(type(v).shape.size()), limits = type(v).shape;
  builder_expect_axis(Opcode::kSlice, axis, limits.size());
  starts[axis] = start;
  limits[axis] = start + length;
  return slice(v, std::move(starts), std::move(limits));
}

Value Builder::dynamic_slice(Value v, std::vector<Value> starts, Shape sizes) {
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

Value Builder::pad(Value v, Value scalar, Shape low, Shape high) {
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
  Shape lhs_axes = dims.lhs_batch, rhs_axes = dims.rhs_batch;
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
  return append({.code = kCode, .operands = {lhs, rhs}, .dot = std::move(dims)}, std::move(result));
}

Value Builder::add(Value a, Value b) {
  return binary(Opcode::kAdd, a, b);
}

Value Builder::subtract(Value a, Value b) {
  return binary(Opcode::kSubtract, a, b);
}

Value Builder::multiply(Value a, Value b) {
  return binary(Opcode::kMultiply, a, b);
}

Value Builder::divide(Value a, Value b) {
  return binary(Opcode::kDivide, a, b);
}

Value Builder::maximum(Value a, Value b) {
  return binary(Opcode::kMaximum, a, b);
}

Value Builder::minimum(Value a, Value b) {
  return binary(Opcode::kMinimum, a, b);
}

Value Builder::binary(Opcode code, Value a, Value b) {
  builder_expect(code >= Opcode::kAdd && code <= Opcode::kShiftRightLogical, code,
                 "expected an operation of two operands");
  if (type(a).shape.empty()) a = splat(a, type(b).shape);
  b = splat(b, type(a).shape);
  builder_expect_element(code, builder_groups_of(code), type(a));
  builder_expect_type(code, "second operand", type(a), type(b));
  return append({.code = code, .operands = {a, b}}, Type(type(a)));
}

Value Builder::unary(Opcode code, Value v) {
  builder_expect(code >= Opcode::kNegate && code <= Opcode::kNot, code,
                 "expected an operation of one operand");
  Type result = type(v);
  builder_expect_element(code, builder_groups_of(code), result);
  if (code == Opcode::kNegate || code == Opcode::kAbs)
    builder_expect(!builder_is_unsigned(result.element), code, "expected signed numbers, got {}",
                   type_text(result));
  if (code == Opcode::kIsFinite) result.element = Element::kPred;
  return append({.code = code, .operands = {v}}, std::move(result));
}

Value Builder::compare(Comparison c, Value a, Value b) {
  constexpr Opcode kCode = Opcode::kCompare;
  if (type(a).shape.empty()) a = splat(a, type(b).shape);
  b = splat(b, type(a).shape);
  builder_expect_element(kCode, kGroupF32 | kGroupInt | kGroupPred, type(a));
  builder_expect_type(kCode, "second operand", type(a), type(b));
  return append({.code = kCode, .operands = {a, b}, .compare = c},
                Type{Element::kPred, type(a).shape});
}

Value Builder::select(Value pred, Value where_true, Value where_false) {
  constexpr Opcode kCode = Opcode::kSelect;
  Shape shape = type(pred).shape;
  if (shape.empty()) shape = type(where_true).shape;
  if (shape.empty()) shape = type(where_false).shape;
  pred = splat(pred, shape);
  where_true = splat(where_true, shape);
  where_false = splat(where_false, shape);
  builder_expect_type(kCode, "predicate", {Element::kPred, shape}, type(pred));
  builder_expect_type(kCode, "where true", {type(where_true).element, shape}, type(where_true));
  builder_expect_type(kCode, "where false", type(where_true), type(where_false));
  return append({.code = kCode, .operands = {pred, where_true, where_false}},
                Type(type(where_true)));
}

Value Builder::reduce(Reducer reducer, Value v, Shape axes) {
  constexpr Opcode kCode = Opcode::kReduce;
  const Type& from = type(v);
  const bool logical = reducer == Reducer::kAnd || reducer == Reducer::kOr;
  builder_expect_element(kCode, logical ? kGroupInt | kGroupPred : kGroupF32 | kGroupInt, from);
  const std::vector<bool> gone = builder_mark_axes(kCode, axes, from.shape.size());
  Type result{from.element, {}};
  for (size_t i = 0; i < from.shape.size(); ++i)
    if (!gone[i]) result.shape.push_back(from.shape[i]);
  const Value initial = constant(from.element, builder_neutral(reducer, from.element));
  return append(
      {.code = kCode, .operands = {v, initial}, .dims = std::move(axes), .reducer = reducer},
      std::move(result));
}

std::vector<Value> Builder::sort(std::vector<Value> operands, int64_t axis) {
  constexpr Opcode kCode = Opcode::kSort;
  builder_expect(!operands.empty(), kCode, "expected keys, got nothing");
  std::vector<Type> types;
  for (const Value v : operands) {
    const Element element = types.empty() ? Element::kF32 : Element::kI32;
    builder_expect_type(kCode, types.empty() ? "keys" : "operand",
                        {element, type(operands.front()).shape}, type(v));
    types.push_back(type(v));
  }
  builder_expect_axis(kCode, axis, types.front().shape.size());
  return append({.code = kCode, .operands = std::move(operands), .axis = axis}, std::move(types));
}

std::vector<Value> Builder::loop(std::vector<Value> initial, const Region& condition,
                                 const Region& body) {
  constexpr Opcode kCode = Opcode::kWhile;
  std::vector<Type> types;
  for (const Value v : initial) types.push_back(type(v));
  // The open blocks lie here until they are whole: elements of a vector would move.
  const auto build = [&](const Region& region) {
    Block inner;
    for (const Type& carried : types) {
      inner.arguments.push_back(static_cast<Value>(program_.types.size()));
      program_.types.push_back(carried);
    }
    const OpenBlock open(open_, inner);
    const std::vector<Value> carried = inner.arguments;
    inner.results = region(carried);
    return inner;
  };
  Op op{.code = kCode, .operands = std::move(initial)};
  op.regions.push_back(build(condition));
  builder_expect_count(kCode, "results of the condition", 1, op.regions[0].results.size());
  builder_expect_type(kCode, "condition", {Element::kPred, {}}, type(op.regions[0].results[0]));
  op.regions.push_back(build(body));
  const std::vector<Value>& next = op.regions[1].results;
  builder_expect_count(kCode, "results of the body", types.size(), next.size());
  for (size_t i = 0; i < next.size(); ++i)
    builder_expect_type(kCode, "result of the body", types[i], type(next[i]));
  return append(std::move(op), std::move(types));
}

}  // namespace adder::xla
