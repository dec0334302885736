#include "backends/xla/lower_math.h"

namespace adder::xla {

Value zero(Builder& b) {
  return b.constant(0.0f);
}

Value silu(Builder& b, Value v) {
  const Value e = b.unary(Opcode::kExponential, b.unary(Opcode::kNegate, v));
  return b.divide(v, b.add(e, b.constant(1.0f)));
}

Value softplus(Builder& b, Value v) {
  // Beyond 88 exp is infinite, which select leaves out.
  const Value small = b.unary(Opcode::kLogPlusOne, b.unary(Opcode::kExponential, v));
  return b.select(b.compare(Comparison::kGt, v, b.constant(20.0f)), v, small);
}

Value exp2(Builder& b, Value v) {
  // The product is off by 2^-24 of itself, the power by |v| * ln2 * 2^-24: 2e-6 at 2^-50.
  return b.unary(Opcode::kExponential, b.multiply(v, b.constant(0x1.62e43p-1f)));
}

Value cumulative_sum(Builder& b, Value v, int64_t axis) {
  const Type type = b.type(v);
  const int64_t length = type.shape[static_cast<size_t>(axis)];
  for (int64_t step = 1; step < length; step *= 2) {
    std::vector<int64_t> low(type.shape.size()), high(type.shape.size());
    low[static_cast<size_t>(axis)] = step;
    const Value shifted =
        b.pad(b.slice_axis(v, axis, 0, length - step), b.constant(type.element, 0), low, high);
    v = b.add(v, shifted);
  }
  return v;
}

Value as_rows(Builder& b, Value v, int64_t rows) {
  const int64_t cols = b.type(v).size();
  return b.broadcast(b.reshape(v, {cols}), {rows, cols}, {1});
}

Value as_columns(Builder& b, Value v, std::vector<int64_t> shape) {
  return b.broadcast(b.reshape(v, {b.type(v).size()}), std::move(shape), {0});
}

}  // namespace adder::xla
