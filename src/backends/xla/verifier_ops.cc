#include "backends/xla/verifier_ops.h"

#include <algorithm>
#include <string>
#include <vector>

namespace adder::xla {
namespace {

using Dims = std::vector<int64_t>;

bool is_integer(Element e) {
  return e == Element::kI8 || e == Element::kI32 || e == Element::kU32 || e == Element::kU64;
}

bool is_signed_number(Element e) {
  return e == Element::kI8 || e == Element::kI32 || e == Element::kF32;
}

bool is_number(Element e) {
  return is_integer(e) || e == Element::kF32;
}

bool is_permutation_of_axes(Dims axes) {
  std::ranges::sort(axes);
  for (int64_t i = 0; i < std::ssize(axes); ++i)
    if (axes[i] != i) return false;
  return true;
}

void require_axes(std::string_view what, Dims axes, size_t rank) {
  for (const int64_t axis : axes)
    require(axis >= 0 && axis < static_cast<int64_t>(rank), "{}: expected axes below {}, got {}",
            what, rank, axis);
  std::ranges::sort(axes);
  require(std::ranges::adjacent_find(axes) == axes.end(), "{}: an axis twice", what);
}

// One operation of which operands and results are known values.
class OpVerifier {
 public:
  OpVerifier(const Program& program, const Op& op) : program_(program), op_(op) {}

  void check() const {
    require(op_.regions.size() == (op_.code == Opcode::kWhile ? 2 : 0), "has {} regions",
            op_.regions.size());
    if (op_.code != Opcode::kSort && op_.code != Opcode::kWhile) results(1);
    switch (op_.code) {
      case Opcode::kConstant:
        return constant();
      case Opcode::kIota:
        operands(0);
        require(is_number(result().element), "expected a result of numbers, got {}",
                type_text(result()));
        return axis(result().shape.size());
      case Opcode::kReshape:
        operands(1);
        return require(result().element == in(0).element && result().size() == in(0).size(),
                       "expected a result of the element and size of {}, got {}", type_text(in(0)),
                       type_text(result()));
      case Opcode::kConvert:
        operands(1);
        return gives({result().element, in(0).shape});
      case Opcode::kBitcastConvert:
        return bitcast();
      case Opcode::kTranspose:
        return transpose();
      case Opcode::kBroadcastInDim:
        return broadcast();
      case Opcode::kSlice:
        return slice();
      case Opcode::kDynamicSlice:
        return dynamic_slice();
      case Opcode::kDynamicUpdateSlice:
        return dynamic_update();
      case Opcode::kConcatenate:
        return concatenate();
      case Opcode::kPad:
        return pad();
      case Opcode::kGatherRows:
        return gather();
      case Opcode::kDotGeneral:
        return dot();
      case Opcode::kAdd:
      case Opcode::kSubtract:
      case Opcode::kMultiply:
      case Opcode::kDivide:
      case Opcode::kMaximum:
      case Opcode::kMinimum:
        return binary(is_number(element()));
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kXor:
        return binary(is_integer(element()) || element() == Element::kPred);
      case Opcode::kShiftLeft:
      case Opcode::kShiftRightLogical:
        return binary(is_integer(element()));
      case Opcode::kNegate:
      case Opcode::kAbs:
        return unary(is_signed_number(element()), element());
      case Opcode::kExponential:
      case Opcode::kLogPlusOne:
      case Opcode::kLog:
      case Opcode::kRsqrt:
      case Opcode::kSqrt:
      case Opcode::kFloor:
        return unary(element() == Element::kF32, element());
      case Opcode::kIsFinite:
        return unary(element() == Element::kF32, Element::kPred);
      case Opcode::kNot:
        return unary(is_integer(element()) || element() == Element::kPred, element());
      case Opcode::kCompare:
        operands(2);
        takes(1, in(0));
        require(is_number(element()) || element() == Element::kPred, "operand 0: cannot compare {}",
                type_text(in(0)));
        return gives({Element::kPred, in(0).shape});
      case Opcode::kSelect:
        operands(3);
        takes(0, {Element::kPred, in(1).shape});
        takes(2, in(1));
        return gives(in(1));
      case Opcode::kReduce:
        return reduce();
      case Opcode::kSort:
        return sort();
      case Opcode::kWhile:
        return loop();
    }
    require(false, "is no operation");
  }

 private:
  const Type& of(Value v) const { return program_.types[v]; }
  const Type& in(size_t i) const { return of(op_.operands[i]); }
  const Type& result() const { return of(op_.results[0]); }
  // Of the first operand, which may be missing.
  Element element() const { return op_.operands.empty() ? Element::kPred : in(0).element; }

  void operands(size_t count) const {
    require(op_.operands.size() == count, "expected {} operands, got {}", count,
            op_.operands.size());
  }
  void at_least(size_t count) const {
    require(op_.operands.size() >= count, "expected at least {} operands, got {}", count,
            op_.operands.size());
  }
  void results(size_t count) const {
    require(op_.results.size() == count, "expected {} results, got {}", count, op_.results.size());
  }
  void takes(size_t i, const Type& expected) const {
    require(in(i) == expected, "operand {}: expected {}, got {}", i, type_text(expected),
            type_text(in(i)));
  }
  void gives(const Type& expected) const {
    require(result() == expected, "result: expected {}, got {}", type_text(expected),
            type_text(result()));
  }
  void axis(size_t rank) const { require_axes("axis", {op_.axis}, rank); }
  static void count(std::string_view what, const Dims& list, size_t expected) {
    require(list.size() == expected, "{}: expected {} numbers, got {}", what, expected,
            list.size());
  }

  void constant() const {
    operands(0);
    const Element e = result().element;
    const bool fits = e == Element::kPred  ? op_.payload <= 1
                      : e == Element::kU64 ? true
                                           : op_.payload < uint64_t{1} << 8 * element_bytes(e);
    require(fits, "expected the bits of one {}, got {:#x}", element_name(e), op_.payload);
  }

  void bitcast() const {
    operands(1);
    const auto from = static_cast<int64_t>(element_bytes(in(0).element));
    const auto to = static_cast<int64_t>(element_bytes(result().element));
    require(in(0).element != Element::kPred && result().element != Element::kPred,
            "an i1 has no bits to cast");
    Dims narrow = from < to ? result().shape : in(0).shape;
    if (from < to) {
      narrow.push_back(to / from);
      return require(narrow == in(0).shape, "{} cannot become {}", type_text(in(0)),
                     type_text(result()));
    }
    if (from > to) narrow.push_back(from / to);
    gives({result().element, narrow});
  }

  void transpose() const {
    operands(1);
    count("permutation", op_.dims, in(0).shape.size());
    require(is_permutation_of_axes(op_.dims), "[{}] is no permutation", fmt::join(op_.dims, ", "));
    Type expected{in(0).element, {}};
    for (const int64_t a : op_.dims) expected.shape.push_back(in(0).shape[a]);
    gives(expected);
  }

  void broadcast() const {
    operands(1);
    count("dims", op_.dims, in(0).shape.size());
    require_axes("dims", op_.dims, result().shape.size());
    require(in(0).element == result().element, "{} cannot become {}", type_text(in(0)),
            type_text(result()));
    for (size_t i = 0; i < op_.dims.size(); ++i)
      require(in(0).shape[i] == 1 || in(0).shape[i] == result().shape[op_.dims[i]],
              "axis {} of {} cannot become axis {} of {}", i, type_text(in(0)), op_.dims[i],
              type_text(result()));
  }

  void slice() const {
    operands(1);
    count("starts", op_.starts, in(0).shape.size());
    count("limits", op_.limits, in(0).shape.size());
    Type expected{in(0).element, {}};
    for (size_t i = 0; i < op_.starts.size(); ++i) {
      require(
          op_.starts[i] >= 0 && op_.limits[i] <= in(0).shape[i] && op_.starts[i] <= op_.limits[i],
          "[{}, {}) is not within axis {} of {}", op_.starts[i], op_.limits[i], i,
          type_text(in(0)));
      expected.shape.push_back(op_.limits[i] - op_.starts[i]);
    }
    gives(expected);
  }

  // Scalars i32, one for each axis of the first operand.
  void indices(size_t first) const {
    at_least(first);
    operands(first + in(0).shape.size());
    for (size_t i = first; i < op_.operands.size(); ++i) takes(i, {Element::kI32, {}});
  }

  void within(const Dims& part) const {
    count("sizes", part, in(0).shape.size());
    for (size_t i = 0; i < part.size(); ++i)
      require(part[i] >= 0 && part[i] <= in(0).shape[i], "{} is not within axis {} of {}", part[i],
              i, type_text(in(0)));
  }

  void dynamic_slice() const {
    indices(1);
    within(op_.dims);
    gives({in(0).element, op_.dims});
  }

  void dynamic_update() const {
    indices(2);
    within(in(1).shape);
    takes(1, {in(0).element, in(1).shape});
    gives(in(0));
  }

  void concatenate() const {
    at_least(1);
    axis(in(0).shape.size());
    Type expected = in(0);
    for (size_t i = 1; i < op_.operands.size(); ++i) {
      require(in(i).shape.size() == in(0).shape.size(), "operand {}: expected rank {}, got {}", i,
              in(0).shape.size(), type_text(in(i)));
      Type part = in(0);
      part.shape[op_.axis] = in(i).shape[op_.axis];
      takes(i, part);
      expected.shape[op_.axis] += part.shape[op_.axis];
    }
    gives(expected);
  }

  void pad() const {
    operands(2);
    takes(1, {in(0).element, {}});
    count("low", op_.starts, in(0).shape.size());
    count("high", op_.limits, in(0).shape.size());
    Type expected = in(0);
    for (size_t i = 0; i < op_.starts.size(); ++i) {
      require(std::min(op_.starts[i], op_.limits[i]) >= 0, "negative padding of axis {}", i);
      expected.shape[i] += op_.starts[i] + op_.limits[i];
    }
    gives(expected);
  }

  void gather() const {
    operands(2);
    require(!in(0).shape.empty() && in(0).shape[0] > 0, "{} has no rows", type_text(in(0)));
    require(in(1).element == Element::kI32 && in(1).shape.size() == 1,
            "operand 1: expected i32 of rank 1, got {}", type_text(in(1)));
    Type expected = in(0);
    expected.shape[0] = in(1).shape[0];
    gives(expected);
  }

  void dot() const {
    operands(2);
    require(in(0).element == in(1).element &&
                (in(0).element == Element::kF32 || in(0).element == Element::kF16 ||
                 in(0).element == Element::kBF16),
            "expected floats of one kind, got {} and {}", type_text(in(0)), type_text(in(1)));
    const DotDims& d = op_.dot;
    count("rhs_batch", d.rhs_batch, d.lhs_batch.size());
    count("rhs_contract", d.rhs_contract, d.lhs_contract.size());
    Type expected{Element::kF32, {}};
    Dims rests;
    const auto side = [&](size_t i, const Dims& batch, const Dims& contract) {
      Dims axes = batch;
      axes.insert(axes.end(), contract.begin(), contract.end());
      require_axes(i == 0 ? "lhs" : "rhs", axes, in(i).shape.size());
      for (int64_t a = 0; a < std::ssize(in(i).shape); ++a)
        if (std::ranges::find(axes, a) == axes.end()) rests.push_back(in(i).shape[a]);
      Dims extents;
      for (const int64_t a : axes) extents.push_back(in(i).shape[a]);
      return extents;
    };
    const Dims lhs = side(0, d.lhs_batch, d.lhs_contract);
    const Dims rhs = side(1, d.rhs_batch, d.rhs_contract);
    require(lhs == rhs, "axes of {} do not fit axes of {}", type_text(in(0)), type_text(in(1)));
    expected.shape.assign(lhs.begin(), lhs.begin() + std::ssize(d.lhs_batch));
    expected.shape.insert(expected.shape.end(), rests.begin(), rests.end());
    gives(expected);
  }

  void binary(bool allowed) const {
    operands(2);
    require(allowed, "cannot be of {}", type_text(in(0)));
    takes(1, in(0));
    gives(in(0));
  }

  void unary(bool allowed, Element to) const {
    operands(1);
    require(allowed, "cannot be of {}", type_text(in(0)));
    gives({to, in(0).shape});
  }

  void reduce() const {
    operands(2);
    const Element e = in(0).element;
    const bool logical = op_.reducer == Reducer::kAnd || op_.reducer == Reducer::kOr;
    require(is_integer(e) || (logical ? e == Element::kPred : e == Element::kF32),
            "cannot be of {}", type_text(in(0)));
    takes(1, {e, {}});
    require_axes("dims", op_.dims, in(0).shape.size());
    Type expected{e, {}};
    for (int64_t a = 0; a < std::ssize(in(0).shape); ++a)
      if (std::ranges::find(op_.dims, a) == op_.dims.end())
        expected.shape.push_back(in(0).shape[a]);
    gives(expected);
  }

  void sort() const {
    at_least(1);
    results(op_.operands.size());
    axis(in(0).shape.size());
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      takes(i, {i == 0 ? Element::kF32 : Element::kI32, in(0).shape});
      require(of(op_.results[i]) == in(i), "result {}: expected {}, got {}", i, type_text(in(i)),
              type_text(of(op_.results[i])));
    }
  }

  void loop() const {
    results(op_.operands.size());
    const auto same = [&](std::string_view what, const std::vector<Value>& values) {
      require(values.size() == op_.operands.size(), "{}: expected {} values, got {}", what,
              op_.operands.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i)
        require(of(values[i]) == in(i), "{}: value {}: expected {}, got {}", what, i,
                type_text(in(i)), type_text(of(values[i])));
    };
    same("results", op_.results);
    same("arguments of the condition", op_.regions[0].arguments);
    same("arguments of the body", op_.regions[1].arguments);
    same("results of the body", op_.regions[1].results);
    const std::vector<Value>& going = op_.regions[0].results;
    require(going.size() == 1 && of(going[0]) == Type{Element::kPred, {}},
            "the condition does not give one tensor<i1>");
  }

  const Program& program_;
  const Op& op_;
};

}  // namespace

void verify_op(const Program& program, const Op& op) {
  OpVerifier(program, op).check();
}

}  // namespace adder::xla
