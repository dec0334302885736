// rms_norm and gated_rms_norm.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"

namespace adder::xla {
namespace {

// v / sqrt(mean(v^2) + eps) over groups of neighbouring elements.
Value normalised(Builder& b, Value v, int64_t groups, float eps) {
  const std::vector<int64_t> flat = b.type(v).shape;
  const int64_t rows = flat[0], width = flat[1] / groups;
  const std::vector<int64_t> shape = {rows, groups, width};
  v = b.reshape(v, shape);
  const Value sum = b.reduce(Reducer::kAdd, b.multiply(v, v), {2});
  const Value mean = b.divide(sum, b.constant(static_cast<float>(width)));
  const Value scale = b.unary(Opcode::kRsqrt, b.add(mean, b.constant(eps)));
  return b.reshape(b.multiply(v, b.broadcast(scale, shape, {0, 1})), flat);
}

}  // namespace

std::vector<Value> lower_norm(TapeOp op, const Lowering& l) {
  Builder& b = l.b;
  Value v = l.in[0];
  const int64_t rows = l.rows(0);
  if (op == TapeOp::kRmsNorm) {
    if (l.has(1)) v = b.add(l.in[1], v);
    Value out = normalised(b, v, 1, l.real(0));
    if (l.has(2)) out = b.multiply(as_rows(b, l.in[2], rows), out);
    if (l.has(1)) return {out, v};
    return {out};
  }
  const bool norm_before_gate = l.flag(2);
  const Value gate = silu(b, l.in[1]);
  if (!norm_before_gate) v = b.multiply(v, gate);
  Value out = b.multiply(as_rows(b, l.in[2], rows), normalised(b, v, l.attributes[1], l.real(0)));
  if (norm_before_gate) out = b.multiply(out, gate);
  return {out};
}

}  // namespace adder::xla
