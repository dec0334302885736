// matmul, embedding and gather_rows. Attributes of matmul: whether one row is multiplied in parts.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"

namespace adder::xla {
namespace {

// One row times (out, in) as a batch: XLA on a CPU streams the parts of a matrix from memory a
// tenth faster than the whole (docs/benchmarking.md). The matrix stays as it is, in a shape of its
// own.
Value product_in_parts(Builder& b, Value row, Value weight) {
  const int64_t out = b.type(weight).shape[0], in = b.type(weight).shape[1];
  int64_t parts = 8;
  while (out % parts != 0) parts /= 2;
  const Value rows = b.broadcast(b.reshape(row, {in}), {parts, in}, {1});
  const Value product =
      b.dot(b.reshape(weight, {parts, out / parts, in}), rows, {{0}, {0}, {2}, {1}});
  return b.reshape(product, {1, out});
}

}  // namespace

std::vector<Value> lower_rows(TapeOp op, const Lowering& l) {
  Builder& b = l.b;
  if (op != TapeOp::kMatmul) {
    // 16-bit weights become float32 after the look-up.
    return {b.convert(b.gather_rows(l.in[0], l.in[1]), Element::kF32)};
  }
  const Value weight = b.convert(l.in[1], Element::kF32);
  Value out =
      l.flag(0) ? product_in_parts(b, l.in[0], weight) : b.dot(l.in[0], weight, {{}, {}, {1}, {1}});
  if (l.has(2)) out = b.add(as_rows(b, l.in[2], l.rows(0)), out);
  return {out};
}

}  // namespace adder::xla
