// Programs that a mistake of the builder might make: each is built rightly, broken by hand, and has
// the verifier say what is wrong. And what the builder itself refuses.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backends/xla/builder.h"
#include "core/error.h"

namespace adder::xla {
namespace {

using Values = std::vector<Value>;
using Build = std::function<void(Builder&)>;
// Gets the last operation of main too.
using Break = std::function<void(Program&, Op&)>;

const Type kF32x2{Element::kF32, {2}}, kF32x23{Element::kF32, {2, 3}}, kI32x2{Element::kI32, {2}};
const Type kScalar{Element::kF32, {}}, kIndex{Element::kI32, {}}, kPred2{Element::kPred, {2}};

void expect_wrong(const Build& build, const Break& change, const std::string& message) {
  Program program;
  Builder b(program);
  build(b);
  ASSERT_EQ(verify(program), "") << message;
  change(program, program.main.ops.back());
  EXPECT_EQ(verify(program), message);
}

void sum(Builder& b) {
  b.result(b.add(b.argument(kF32x2), b.argument(kF32x2)));  // %2 of %0 and %1
}

TEST(Verifier, AcceptsNothingAtAll) {
  EXPECT_EQ(verify(Program{}), "");
}

TEST(Verifier, DefinitionsAndUses) {
  expect_wrong(
      sum, [](Program&, Op& op) { op.operands[1] = 2; },
      "%2 = stablehlo.add: %2 is used before it is defined");
  expect_wrong(
      sum, [](Program&, Op& op) { op.operands[0] = 9; },
      "%2 = stablehlo.add: %9 is no value of the program");
  expect_wrong(
      sum, [](Program&, Op& op) { op.operands[0] = kNoValue; },
      "%2 = stablehlo.add: %4294967295 is no value of the program");
  expect_wrong(
      sum, [](Program&, Op& op) { op.results[0] = 1; }, "%1 = stablehlo.add: %1 is defined twice");
  expect_wrong(
      sum, [](Program& p, Op& op) { p.main.ops.push_back(Op(op)); },
      "%2 = stablehlo.add: %2 is defined twice");
  expect_wrong(
      sum, [](Program& p, Op&) { p.main.arguments[1] = 0; }, "%0 is defined twice");
  expect_wrong(
      sum, [](Program& p, Op&) { p.main.ops.clear(); }, "%2 is used before it is defined");
  expect_wrong(
      sum, [](Program& p, Op&) { p.types[0].shape[0] = -1; }, "%0 has a negative extent");
  expect_wrong(
      sum, [](Program&, Op& op) { op.results.clear(); },
      "stablehlo.add: expected 1 results, got 0");
  expect_wrong(
      sum, [](Program&, Op& op) { op.regions.emplace_back(); },
      "%2 = stablehlo.add: has 1 regions");
}

// %0 end, %1 x; condition (%2 %3): %4; body (%5 %6): %7 = 1, %8, %9; results %10, %11.
void loop(Builder& b) {
  const Value end = b.argument(kIndex), x = b.argument(kF32x2);
  const Values r = b.loop(
      {end, x}, [&](auto c) { return Values{b.compare(Comparison::kGt, c[0], end)}; },
      [&](auto c) {
        return Values{b.subtract(c[0], b.constant(1)), b.add(c[1], x)};
      });
  b.result(r[1]);
}

TEST(Verifier, Loops) {
  expect_wrong(
      loop, [](Program& p, Op&) { p.main.results[0] = 9; },
      "%9 is used outside of the region that defines it");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions[1].ops[1].operands[0] = 4; },
      "%8 = stablehlo.subtract: %4 is used outside of the region that defines it");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions[1].arguments[0] = 2; }, "%2 is defined twice");
  expect_wrong(
      loop, [](Program&, Op& op) { std::swap(op.regions[1].results[0], op.regions[1].results[1]); },
      "%10 = stablehlo.while: results of the body: value 0: expected tensor<i32>, got "
      "tensor<2xf32>");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions[1].results.pop_back(); },
      "%10 = stablehlo.while: results of the body: expected 2 values, got 1");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions[0].results[0] = 2; },
      "%10 = stablehlo.while: the condition does not give one tensor<i1>");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions[0].arguments.pop_back(); },
      "%10 = stablehlo.while: arguments of the condition: expected 2 values, got 1");
  expect_wrong(
      loop, [](Program& p, Op&) { p.types[10] = kF32x2; },
      "%10 = stablehlo.while: results: value 0: expected tensor<i32>, got tensor<2xf32>");
  expect_wrong(
      loop, [](Program&, Op& op) { op.results.pop_back(); },
      "%10 = stablehlo.while: expected 2 results, got 1");
  expect_wrong(
      loop, [](Program&, Op& op) { op.regions.pop_back(); },
      "%10 = stablehlo.while: has 1 regions");
}

TEST(Verifier, DonatedArguments) {
  const Build two = [](Builder& b) {
    const Value x = b.argument(kF32x2), y = b.argument(kI32x2);
    b.result(x, 0);
    b.result(b.convert(y, Element::kF32));
  };
  expect_wrong(
      two, [](Program& p, Op&) { p.donated[1] = 0; }, "argument 0 is donated twice");
  expect_wrong(
      two, [](Program& p, Op&) { p.donated[1] = 1; },
      "result 1 on argument 1: expected tensor<2xi32>, got tensor<2xf32>");
  expect_wrong(
      two, [](Program& p, Op&) { p.donated[1] = 2; },
      "result 1: there is no argument 2 to take over");
  expect_wrong(
      two, [](Program& p, Op&) { p.donated[1] = -2; },
      "result 1: there is no argument -2 to take over");
  expect_wrong(
      two, [](Program& p, Op&) { p.donated.pop_back(); },
      "expected 2 entries of donated, one for each result, got 1");
}

// Gives the last operation's result another type.
Break result_type(Type type) {
  return [type = std::move(type)](Program& p, Op& op) { p.types[op.results[0]] = type; };
}

Break operand_type(size_t i, Type type) {
  return [i, type = std::move(type)](Program& p, Op& op) { p.types[op.operands[i]] = type; };
}

TEST(Verifier, ElementwiseTypes) {
  expect_wrong(sum, operand_type(1, kI32x2),
               "%2 = stablehlo.add: operand 1: expected tensor<2xf32>, got tensor<2xi32>");
  expect_wrong(sum, result_type(kF32x23),
               "%2 = stablehlo.add: result: expected tensor<2xf32>, got tensor<2x3xf32>");
  expect_wrong(
      sum, [](Program&, Op& op) { op.code = Opcode::kXor; },
      "%2 = stablehlo.xor: cannot be of tensor<2xf32>");
  expect_wrong(
      sum, [](Program&, Op& op) { op.code = Opcode::kShiftLeft; },
      "%2 = stablehlo.shift_left: cannot be of tensor<2xf32>");
  expect_wrong(
      sum, [](Program&, Op& op) { op.operands.pop_back(); },
      "%2 = stablehlo.add: expected 2 operands, got 1");
  expect_wrong(
      sum, [](Program& p, Op&) { p.types[0] = p.types[1] = p.types[2] = kPred2; },
      "%2 = stablehlo.add: cannot be of tensor<2xi1>");
  const Build exp = [](Builder& b) { b.unary(Opcode::kExponential, b.argument(kF32x2)); };
  expect_wrong(exp, operand_type(0, {Element::kF16, {2}}),
               "%1 = stablehlo.exponential: cannot be of tensor<2xf16>");
  expect_wrong(
      exp, [](Program&, Op& op) { op.operands.clear(); },
      "%1 = stablehlo.exponential: expected 1 operands, got 0");
  expect_wrong(
      exp, [](Program&, Op& op) { op.code = Opcode::kIsFinite; },
      "%1 = stablehlo.is_finite: result: expected tensor<2xi1>, got tensor<2xf32>");
  expect_wrong([](Builder& b) { b.unary(Opcode::kNegate, b.argument(kI32x2)); },
               operand_type(0, {Element::kU32, {2}}),
               "%1 = stablehlo.negate: cannot be of tensor<2xui32>");
  const Build compare = [](Builder& b) {
    b.compare(Comparison::kLt, b.argument(kF32x2), b.argument(kF32x2));
  };
  expect_wrong(compare, result_type(kF32x2),
               "%2 = stablehlo.compare: result: expected tensor<2xi1>, got tensor<2xf32>");
  const Build select = [](Builder& b) {
    b.select(b.argument(kPred2), b.argument(kF32x2), b.argument(kF32x2));
  };
  expect_wrong(select, operand_type(0, {Element::kPred, {}}),
               "%3 = stablehlo.select: operand 0: expected tensor<2xi1>, got tensor<i1>");
  expect_wrong(select, operand_type(2, kI32x2),
               "%3 = stablehlo.select: operand 2: expected tensor<2xf32>, got tensor<2xi32>");
  expect_wrong([](Builder& b) { b.convert(b.argument(kF32x2), Element::kI32); },
               result_type({Element::kI32, {3}}),
               "%1 = stablehlo.convert: result: expected tensor<2xi32>, got tensor<3xi32>");
}

TEST(Verifier, Constants) {
  const Build one = [](Builder& b) { b.constant(Element::kF16, 0x3c00); };
  expect_wrong(
      one, [](Program&, Op& op) { op.payload = 0x10000; },
      "%0 = stablehlo.constant: expected the bits of one f16, got 0x10000");
  expect_wrong(one, result_type({Element::kPred, {}}),
               "%0 = stablehlo.constant: expected the bits of one i1, got 0x3c00");
  const Build iota = [](Builder& b) { b.iota(kI32x2, 0); };
  expect_wrong(
      iota, [](Program&, Op& op) { op.axis = 1; },
      "%0 = stablehlo.iota: axis: expected axes below 1, got 1");
  expect_wrong(iota, result_type(kPred2),
               "%0 = stablehlo.iota: expected a result of numbers, got tensor<2xi1>");
}

TEST(Verifier, Shapes) {
  expect_wrong([](Builder& b) { b.reshape(b.argument(kF32x23), {6}); },
               result_type({Element::kF32, {5}}),
               "%1 = stablehlo.reshape: expected a result of the element and size of "
               "tensor<2x3xf32>, got tensor<5xf32>");
  const Build bitcast = [](Builder& b) { b.bitcast(b.argument(kF32x2), Element::kI8); };
  expect_wrong(bitcast, result_type({Element::kI8, {2, 2}}),
               "%1 = stablehlo.bitcast_convert: result: expected tensor<2x4xi8>, got "
               "tensor<2x2xi8>");
  expect_wrong(bitcast, result_type({Element::kU64, {1}}),
               "%1 = stablehlo.bitcast_convert: tensor<2xf32> cannot become tensor<1xui64>");
  expect_wrong(bitcast, result_type({Element::kPred, {2, 4}}),
               "%1 = stablehlo.bitcast_convert: an i1 has no bits to cast");
  const Build transpose = [](Builder& b) { b.transpose(b.argument(kF32x23), {1, 0}); };
  expect_wrong(
      transpose,
      [](Program&, Op& op) {
        op.dims = {1, 1};
      },
      "%1 = stablehlo.transpose: [1, 1] is no permutation");
  expect_wrong(
      transpose, [](Program&, Op& op) { op.dims = {0}; },
      "%1 = stablehlo.transpose: permutation: expected 2 numbers, got 1");
  expect_wrong(transpose, result_type(kF32x23),
               "%1 = stablehlo.transpose: result: expected tensor<3x2xf32>, got tensor<2x3xf32>");
  const Build broadcast = [](Builder& b) { b.broadcast(b.argument(kF32x2), {3, 2}, {1}); };
  expect_wrong(
      broadcast, [](Program&, Op& op) { op.dims = {0}; },
      "%1 = stablehlo.broadcast_in_dim: axis 0 of tensor<2xf32> cannot become axis 0 of "
      "tensor<3x2xf32>");
  expect_wrong(
      broadcast, [](Program&, Op& op) { op.dims = {2}; },
      "%1 = stablehlo.broadcast_in_dim: dims: expected axes below 2, got 2");
  const Build twice = [](Builder& b) {
    b.broadcast(b.argument({Element::kF32, {1, 1}}), {2, 2}, {0, 1});
  };
  expect_wrong(
      twice,
      [](Program&, Op& op) {
        op.dims = {1, 1};
      },
      "%1 = stablehlo.broadcast_in_dim: dims: an axis twice");
}

TEST(Verifier, Parts) {
  const Build slice = [](Builder& b) { b.slice(b.argument(kF32x23), {0, 1}, {2, 3}); };
  expect_wrong(
      slice, [](Program&, Op& op) { op.limits[1] = 4; },
      "%1 = stablehlo.slice: [1, 4) is not within axis 1 of tensor<2x3xf32>");
  expect_wrong(
      slice, [](Program&, Op& op) { op.starts[1] = -1; },
      "%1 = stablehlo.slice: [-1, 3) is not within axis 1 of tensor<2x3xf32>");
  expect_wrong(
      slice, [](Program&, Op& op) { op.limits.clear(); },
      "%1 = stablehlo.slice: limits: expected 2 numbers, got 0");
  expect_wrong(
      slice, [](Program&, Op& op) { op.starts[1] = 0; },
      "%1 = stablehlo.slice: result: expected tensor<2x3xf32>, got tensor<2x2xf32>");
  const Build dynamic = [](Builder& b) {
    b.dynamic_slice(b.argument(kF32x2), {b.argument(kIndex)}, {1});
  };
  expect_wrong(
      dynamic, [](Program&, Op& op) { op.dims[0] = 3; },
      "%2 = stablehlo.dynamic_slice: 3 is not within axis 0 of tensor<2xf32>");
  expect_wrong(
      dynamic, [](Program&, Op& op) { op.operands.pop_back(); },
      "%2 = stablehlo.dynamic_slice: expected 2 operands, got 1");
  expect_wrong(dynamic, operand_type(1, {Element::kU32, {}}),
               "%2 = stablehlo.dynamic_slice: operand 1: expected tensor<i32>, got tensor<ui32>");
  const Build update = [](Builder& b) {
    b.dynamic_update(b.argument(kF32x2), b.argument(kF32x2), {b.argument(kIndex)});
  };
  expect_wrong(update, operand_type(1, {Element::kF32, {3}}),
               "%3 = stablehlo.dynamic_update_slice: 3 is not within axis 0 of tensor<2xf32>");
  expect_wrong(update, operand_type(1, kI32x2),
               "%3 = stablehlo.dynamic_update_slice: operand 1: expected tensor<2xf32>, got "
               "tensor<2xi32>");
  expect_wrong(update, operand_type(2, kF32x2),
               "%3 = stablehlo.dynamic_update_slice: operand 2: expected tensor<i32>, got "
               "tensor<2xf32>");
  const Build join = [](Builder& b) {
    b.concatenate({b.argument(kF32x23), b.argument(kF32x23)}, 1);
  };
  expect_wrong(
      join, [](Program&, Op& op) { op.axis = 0; },
      "%2 = stablehlo.concatenate: result: expected tensor<4x3xf32>, got tensor<2x6xf32>");
  expect_wrong(join, operand_type(1, {Element::kF32, {3, 3}}),
               "%2 = stablehlo.concatenate: operand 1: expected tensor<2x3xf32>, got "
               "tensor<3x3xf32>");
  expect_wrong(join, operand_type(1, kF32x2),
               "%2 = stablehlo.concatenate: operand 1: expected rank 2, got tensor<2xf32>");
  const Build pad = [](Builder& b) { b.pad(b.argument(kF32x2), b.argument(kScalar), {1}, {2}); };
  expect_wrong(
      pad, [](Program&, Op& op) { op.starts[0] = -1; },
      "%2 = stablehlo.pad: negative padding of axis 0");
  expect_wrong(
      pad, [](Program&, Op& op) { op.limits[0] = 1; },
      "%2 = stablehlo.pad: result: expected tensor<4xf32>, got tensor<5xf32>");
  expect_wrong(pad, operand_type(1, kIndex),
               "%2 = stablehlo.pad: operand 1: expected tensor<f32>, got tensor<i32>");
  const Build gather = [](Builder& b) { b.gather_rows(b.argument(kF32x23), b.argument(kI32x2)); };
  expect_wrong(gather, operand_type(1, kF32x2),
               "%2 = stablehlo.gather: operand 1: expected i32 of rank 1, got tensor<2xf32>");
  expect_wrong(gather, operand_type(0, {Element::kF32, {0, 3}}),
               "%2 = stablehlo.gather: tensor<0x3xf32> has no rows");
  expect_wrong(gather, operand_type(1, {Element::kI32, {4}}),
               "%2 = stablehlo.gather: result: expected tensor<4x3xf32>, got tensor<2x3xf32>");
}

TEST(Verifier, Products) {
  const Build dot = [](Builder& b) {
    const Value x = b.argument(kF32x23);
    b.dot(x, b.argument(kF32x23), {{}, {}, {1}, {1}});
  };
  expect_wrong(
      dot, [](Program&, Op& op) { op.dot.rhs_contract = {0}; },
      "%2 = stablehlo.dot_general: axes of tensor<2x3xf32> do not fit axes of "
      "tensor<2x3xf32>");
  expect_wrong(
      dot, [](Program&, Op& op) { op.dot.rhs_contract.clear(); },
      "%2 = stablehlo.dot_general: rhs_contract: expected 1 numbers, got 0");
  expect_wrong(
      dot, [](Program&, Op& op) { op.dot.lhs_batch = op.dot.rhs_batch = {1}; },
      "%2 = stablehlo.dot_general: lhs: an axis twice");
  expect_wrong(
      dot, [](Program&, Op& op) { op.dot.rhs_contract = {2}; },
      "%2 = stablehlo.dot_general: rhs: expected axes below 2, got 2");
  expect_wrong(
      dot, [](Program&, Op& op) { op.dot.lhs_batch = op.dot.rhs_batch = {0}; },
      "%2 = stablehlo.dot_general: result: expected tensor<2xf32>, got tensor<2x2xf32>");
  expect_wrong(dot, operand_type(1, {Element::kBF16, {2, 3}}),
               "%2 = stablehlo.dot_general: expected floats of one kind, got tensor<2x3xf32> and "
               "tensor<2x3xbf16>");
  expect_wrong(dot, result_type({Element::kF16, {2, 2}}),
               "%2 = stablehlo.dot_general: result: expected tensor<2x2xf32>, got "
               "tensor<2x2xf16>");
}

TEST(Verifier, ReductionsAndSorting) {
  const Build reduce = [](Builder& b) { b.reduce(Reducer::kAdd, b.argument(kF32x23), {1}); };
  expect_wrong(
      reduce, [](Program&, Op& op) { op.reducer = Reducer::kOr; },
      "%2 = stablehlo.reduce: cannot be of tensor<2x3xf32>");
  expect_wrong(
      reduce, [](Program&, Op& op) { op.dims = {0}; },
      "%2 = stablehlo.reduce: result: expected tensor<3xf32>, got tensor<2xf32>");
  expect_wrong(
      reduce, [](Program&, Op& op) { op.dims = {2}; },
      "%2 = stablehlo.reduce: dims: expected axes below 2, got 2");
  expect_wrong(reduce, operand_type(1, kF32x2),
               "%2 = stablehlo.reduce: operand 1: expected tensor<f32>, got tensor<2xf32>");
  const Build sort = [](Builder& b) { b.sort({b.argument(kF32x2), b.argument(kI32x2)}, 0); };
  expect_wrong(sort, operand_type(0, kI32x2),
               "%2 = stablehlo.sort: operand 0: expected tensor<2xf32>, got tensor<2xi32>");
  expect_wrong(sort, operand_type(1, {Element::kI32, {3}}),
               "%2 = stablehlo.sort: operand 1: expected tensor<2xi32>, got tensor<3xi32>");
  expect_wrong(
      sort, [](Program& p, Op& op) { p.types[op.results[1]] = kF32x2; },
      "%2 = stablehlo.sort: result 1: expected tensor<2xi32>, got tensor<2xf32>");
  expect_wrong(
      sort, [](Program&, Op& op) { op.results.pop_back(); },
      "%2 = stablehlo.sort: expected 2 results, got 1");
  expect_wrong(
      sort, [](Program&, Op& op) { op.axis = -1; },
      "%2 = stablehlo.sort: axis: expected axes below 1, got -1");
}

// What the builder says of a wrong call.
std::string refusal(const Build& build) {
  Program program;
  Builder b(program);
  try {
    build(b);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
  return "no error";
}

TEST(Builder, SaysWhatDoesNotFit) {
  const std::pair<Build, std::string> cases[] = {
      {[](Builder& b) { b.add(b.argument(kF32x2), b.argument(kF32x23)); },
       "stablehlo.add: second operand: expected tensor<2xf32>, got tensor<2x3xf32>"},
      {[](Builder& b) { b.add(b.argument(kF32x2), b.constant(1)); },
       "stablehlo.add: second operand: expected tensor<2xf32>, got tensor<2xi32>"},
      {[](Builder& b) {
         b.add(b.argument({Element::kBF16, {2}}), b.constant(1));
       },
       "stablehlo.add: expected f32 or integers, got tensor<2xbf16>"},
      {[](Builder& b) { b.unary(Opcode::kAdd, b.argument(kF32x2)); },
       "stablehlo.add: expected an operation of one operand"},
      {[](Builder& b) {
         b.unary(Opcode::kNegate, b.argument({Element::kU32, {}}));
       },
       "stablehlo.negate: expected signed numbers, got tensor<ui32>"},
      {[](Builder& b) { b.reshape(b.argument(kF32x23), {5}); },
       "stablehlo.reshape: expected the size of tensor<2x3xf32>, got tensor<5xf32>"},
      {[](Builder& b) {
         b.bitcast(b.argument({Element::kI8, {3}}), Element::kF16);
       },
       "stablehlo.bitcast_convert: to f16: expected a last axis of 2, got tensor<3xi8>"},
      {[](Builder& b) {
         b.transpose(b.argument(kF32x23), {0, 0});
       },
       "stablehlo.transpose: expected different axes, got 0 twice"},
      {[](Builder& b) { b.broadcast(b.argument(kF32x2), {3}, {0}); },
       "stablehlo.broadcast_in_dim: axis 0: expected 1 or 3, got 2"},
      {[](Builder& b) { b.fill(b.argument(kF32x2), {2}); },
       "stablehlo.broadcast_in_dim: scalar: expected tensor<f32>, got tensor<2xf32>"},
      {[](Builder& b) { b.slice_axis(b.argument(kF32x2), 0, 1, 2); },
       "stablehlo.slice: axis 0: expected a range within 2, got [1, 3)"},
      {[](Builder& b) { b.slice_axis(b.argument(kF32x2), 1, 0, 1); },
       "stablehlo.slice: expected an axis below 1, got 1"},
      {[](Builder& b) { b.dynamic_slice(b.argument(kF32x2), {}, {1}); },
       "stablehlo.dynamic_slice: starts: expected 1, got 0"},
      {[](Builder& b) { b.dynamic_update(b.argument(kF32x2), b.argument(kI32x2), {}); },
       "stablehlo.dynamic_update_slice: expected an update of the element and rank of "
       "tensor<2xf32>, got tensor<2xi32>"},
      {[](Builder& b) {
         b.concatenate({b.argument(kF32x2), b.argument(kI32x2)}, 0);
       },
       "stablehlo.concatenate: part: expected tensor<2xf32>, got tensor<2xi32>"},
      {[](Builder& b) { b.gather_rows(b.argument(kF32x2), b.argument(kF32x2)); },
       "stablehlo.gather: indices: expected i32 of rank 1, got tensor<2xf32>"},
      {[](Builder& b) {
         b.dot(b.argument(kF32x2), b.argument(kF32x23), {{}, {}, {0}, {1}});
       },
       "stablehlo.dot_general: axis 1 of rhs: expected 2 as axis 0 of lhs, got 3"},
      {[](Builder& b) { b.sort({b.argument(kI32x2)}, 0); },
       "stablehlo.sort: keys: expected tensor<2xf32>, got tensor<2xi32>"},
      {[](Builder& b) { b.reduce(Reducer::kAnd, b.argument(kF32x2), {0}); },
       "stablehlo.reduce: expected integers or i1, got tensor<2xf32>"},
      {[](Builder& b) {
         b.loop(
             {b.constant(0)}, [](auto c) { return Values{c[0]}; },
             [](auto c) { return Values{c[0]}; });
       },
       "stablehlo.while: condition: expected tensor<i1>, got tensor<i32>"},
      {[](Builder& b) {
         b.loop(
             {b.constant(0)}, [&](auto) { return Values{b.constant(Element::kPred, 0)}; },
             [&](auto) { return Values{b.constant(0.0f)}; });
       },
       "stablehlo.while: result of the body: expected tensor<i32>, got tensor<f32>"},
      {[](Builder& b) { b.type(4); }, "expected a value below 0, got 4"},
      {[](Builder& b) { b.result(b.argument(kF32x2), 1); },
       "donated argument: expected one of 1, got 1"},
      {[](Builder& b) {
         b.argument(kF32x2);
         b.result(b.argument(kI32x2), 0);
       },
       "result on donated argument 0: expected tensor<2xf32>, got tensor<2xi32>"},
      {[](Builder& b) {
         const Value x = b.argument(kF32x2);
         b.result(x, 0);
         b.result(x, 0);
       },
       "argument 0 is donated twice"},
      {[](Builder& b) {
         b.loop(
             {},
             [&](auto) {
               return Values{b.argument({Element::kPred, {}})};
             },
             nullptr);
       },
       "an argument inside a region"},
  };
  for (const auto& [build, message] : cases) EXPECT_EQ(refusal(build), "xla builder: " + message);
}

TEST(Builder, ARegionThatFailsIsClosed) {
  Program program;
  Builder b(program);
  EXPECT_THROW(b.loop(
                   {}, [&](auto) -> Values { return {b.type(9).shape.empty()}; }, nullptr),
               Error);
  b.result(b.constant(1));  // into main, which is open again
  EXPECT_EQ(verify(program), "");
}

}  // namespace
}  // namespace adder::xla
