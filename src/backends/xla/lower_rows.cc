// matmul, embedding and gather_rows.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"

namespace adder::xla {

std::vector<Value> lower_rows(TapeOp op, const Lowering& l) {
  Builder& b = l.b;
  if (op != TapeOp::kMatmul) {
    // 16-bit weights become float32 after the look-up.
    return {b.convert(b.gather_rows(l.in[0], l.in[1]), Element::kF32)};
  }
  const Value weight = b.convert(l.in[1], Element::kF32);
  Value out = b.dot(l.in[0], weight, {{}, {}, {1}, {1}});
  if (l.has(2)) out = b.add(as_rows(b, l.in[2], l.rows(0)), out);
  return {out};
}

}  // namespace adder::xla
