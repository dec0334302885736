// Formulas that several operations share.
#pragma once

#include "backends/xla/builder.h"

namespace adder::xla {

Value silu(Builder& b, Value v);      // v / (1 + exp(-v))
Value softplus(Builder& b, Value v);  // v > 20 ? v : log1p(exp(v))
Value exp2(Builder& b, Value v);      // for v <= 0
// v[.., i, ..] = sum of v[.., j, ..] for j <= i, in as many additions as the length has bits.
Value cumulative_sum(Builder& b, Value v, int64_t axis);
// A vector (n) or (1, n) as each row of (rows, n).
Value as_rows(Builder& b, Value v, int64_t rows);
// (rows) as each column of a shape whose first axis it is.
Value as_columns(Builder& b, Value v, std::vector<int64_t> shape);
Value zero(Builder& b);  // scalar f32

}  // namespace adder::xla
