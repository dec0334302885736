// Appends operations to a program and infers their types.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backends/xla/program.h"

namespace adder::xla {

// Every function throws Error(kInternal) when operands do not fit: a mistake of the caller's.
// Element-wise operations take operands of one shape; a scalar (rank 0) operand of the same element
// is broadcast. reshape, convert, bitcast, transpose, broadcast and slice give their operand back
// where they would change nothing.
//
// Arithmetic is of f32 and integers; the 16-bit floats are converted, multiplied by dot, and moved.
class Builder {
 public:
  explicit Builder(Program& program);

  const Type& type(Value v) const;  // stays valid

  Value argument(Type type);  // of main
  void result(Value v, int32_t donated_argument = -1);

  Value constant(float value);    // scalar f32
  Value constant(int32_t value);  // scalar i32
  Value constant(Element element, uint64_t bits);
  Value fill(Value scalar, std::vector<int64_t> shape);
  Value iota(Type type, int64_t axis);

  Value reshape(Value v, std::vector<int64_t> shape);
  Value convert(Value v, Element element);
  // To a narrower element a last axis is added, to a wider one the last axis goes: its parts, the
  // lowest bits first.
  Value bitcast(Value v, Element element);
  Value transpose(Value v, std::vector<int64_t> permutation);
  Value broadcast(Value v, std::vector<int64_t> shape, std::vector<int64_t> axes);
  Value slice(Value v, std::vector<int64_t> starts, std::vector<int64_t> limits);
  Value slice_axis(Value v, int64_t axis, int64_t start, int64_t length);
  Value dynamic_slice(Value v, std::vector<Value> starts, std::vector<int64_t> sizes);
  Value dynamic_update(Value v, Value update, std::vector<Value> starts);
  Value concatenate(std::vector<Value> parts, int64_t axis);
  Value pad(Value v, Value scalar, std::vector<int64_t> low, std::vector<int64_t> high);
  Value gather_rows(Value rows, Value indices);
  Value dot(Value lhs, Value rhs, DotDims dims);  // result: batch, lhs rest, rhs rest; f32

  Value add(Value a, Value b);
  Value subtract(Value a, Value b);
  Value multiply(Value a, Value b);
  Value divide(Value a, Value b);
  Value maximum(Value a, Value b);
  Value minimum(Value a, Value b);
  Value binary(Opcode code, Value a, Value b);  // the rest of them
  Value unary(Opcode code, Value v);
  Value compare(Comparison c, Value a, Value b);
  Value select(Value pred, Value where_true, Value where_false);
  Value reduce(Reducer reducer, Value v,
               std::vector<int64_t> axes);  // begins with its neutral element
  // Stable, by the first operand (f32), the largest first, NaN last.
  std::vector<Value> sort(std::vector<Value> operands, int64_t axis);

  using Region = std::function<std::vector<Value>(std::span<const Value> carried)>;
  // condition gives one scalar pred, body as many values as are carried, of the same types.
  std::vector<Value> loop(std::vector<Value> initial, const Region& condition, const Region& body);

 private:
  Value append(Op op, Type type);
  std::vector<Value> append(Op op, std::vector<Type> types);
  Value splat(Value v, const std::vector<int64_t>& shape);  // a scalar, or of that shape already
  Block& block();

  Program& program_;
  std::vector<Block*> open_;  // the innermost block last
};

}  // namespace adder::xla
