#include "backends/xla/builder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "backends/xla/builder_checks.h"

namespace adder::xla {
namespace {

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

Value Builder::fill(Value scalar, std::vector<int64_t> shape) {
  builder_expect_type(Opcode::kBroadcastInDim, "scalar", {type(scalar).element, {}}, type(scalar));
  return broadcast(scalar, std::move(shape), {});
}

Value Builder::splat(Value v, const std::vector<int64_t>& shape) {
  return type(v).shape.empty() ? broadcast(v, shape, {}) : v;
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
  std::vector<int64_t> shape = type(pred).shape;
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

Value Builder::reduce(Reducer reducer, Value v, std::vector<int64_t> axes) {
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
  types.reserve(initial.size());
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
