// sample. Operands: logits, penalised? (rows * vocab_limit) i8, penalty?, temperature?, min_p?,
// top_k?, top_p?, uniform?; attributes: vocab_limit.
#include "backends/xla/lower_sample.h"

#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"
#include "kernels/decode_loop.h"

namespace adder::xla {
namespace {

Value sample_u64(Builder& b, uint64_t value) {
  return b.constant(Element::kU64, value);
}

// (rows) over the ids.
Value sample_over(Builder& b, Value v, const std::vector<int64_t>& shape) {
  return b.broadcast(v, shape, {0});
}

// floor(fraction * sum), with the fraction in units of 2^-32. Sums are below 2^60.
Value sample_share(Builder& b, Value fraction, Value sum) {
  const Value half = sample_u64(b, 32);
  const Value high = b.binary(Opcode::kShiftRightLogical, sum, half);
  const Value low = b.binary(Opcode::kAnd, sum, sample_u64(b, 0xffffffffu));
  return b.add(b.multiply(fraction, high),
               b.binary(Opcode::kShiftRightLogical, b.multiply(fraction, low), half));
}

// The lowest id among the largest logits.
Value sample_greedy(Builder& b, Value logits) {
  const std::vector<int64_t> shape = b.type(logits).shape;
  const Value largest = b.reduce(Reducer::kMaximum, logits, {1});
  const Value is_largest = b.compare(Comparison::kEq, logits, sample_over(b, largest, shape));
  const Value ids = b.iota({Element::kI32, shape}, 1);
  const Value none = b.constant(static_cast<int32_t>(shape[1] - 1));
  return b.reduce(Reducer::kMinimum, b.select(is_largest, ids, none), {1});
}

Value sample_drawn(Builder& b, Value logits, const SampleValues& o) {
  const std::vector<int64_t> shape = b.type(logits).shape;
  const Value ids = b.iota({Element::kI32, shape}, 1), place = ids;
  const std::vector<Value> order = b.sort({logits, ids}, 1);
  const auto over = [&](Value v) { return sample_over(b, v, shape); };
  const Value largest = b.reshape(b.slice_axis(order[0], 1, 0, 1), {shape[0]});
  // Rows of temperature 0 are not drawn; they must only not divide by it.
  const Value is_greedy = b.compare(Comparison::kEq, o.temperature, zero(b));
  const Value temperature = b.select(is_greedy, b.constant(1.0f), o.temperature);
  const Value weight = b.unary(Opcode::kExponential,
                               b.divide(b.subtract(order[0], over(largest)), over(temperature)));
  const Value first = b.compare(Comparison::kEq, place, b.constant(int32_t{0}));
  const Value in_top = b.compare(Comparison::kLt, place, over(o.top_k));
  const Value no_units = sample_u64(b, 0);
  const Value units =
      b.select(in_top, b.convert(b.multiply(weight, b.constant(0x1p40f)), Element::kU64), no_units);
  const Value sums = cumulative_sum(b, units, 1);
  const Value total = b.reduce(Reducer::kAdd, units, {1});
  const Value before = b.subtract(sums, units);
  const Value in_nucleus =
      b.compare(Comparison::kLt, before, over(sample_share(b, o.top_p, total)));
  const Value likely = b.compare(Comparison::kGe, weight, over(o.min_p));
  const Value kept =
      b.binary(Opcode::kOr, first,
               b.binary(Opcode::kAnd, in_top, b.binary(Opcode::kAnd, in_nucleus, likely)));
  const Value left = b.reduce(Reducer::kAdd, b.select(kept, units, no_units), {1});
  // What is kept is the front of the order, so its sums are those of all.
  const Value exceeds = b.compare(Comparison::kGt, sums, over(sample_share(b, o.uniform, left)));
  const Value chosen =
      b.reduce(Reducer::kMinimum,
               b.select(exceeds, place, b.constant(static_cast<int32_t>(shape[1] - 1))), {1});
  const Value is_chosen = b.compare(Comparison::kEq, place, over(chosen));
  const Value id =
      b.reduce(Reducer::kMaximum, b.select(is_chosen, order[1], b.constant(int32_t{0})), {1});
  return b.select(is_greedy, sample_greedy(b, logits), id);
}

}  // namespace

uint64_t in_units(float fraction) {
  return static_cast<uint64_t>(static_cast<double>(fraction) * 0x1p32);
}

Value choose_ids(Builder& b, Value logits, int64_t vocab_limit, const SampleValues& options) {
  Value v = b.slice_axis(logits, 1, 0, vocab_limit);
  const std::vector<int64_t> shape = b.type(v).shape;
  const Value is_nan = b.compare(Comparison::kNe, v, v);
  const Value largest = b.reduce(Reducer::kMaximum, b.select(is_nan, zero(b), v), {1});
  const Value finite = b.binary(Opcode::kAnd, b.unary(Opcode::kIsFinite, largest),
                                b.unary(Opcode::kNot, b.reduce(Reducer::kOr, is_nan, {1})));
  if (options.penalised != kNoValue) {
    const Value penalty = sample_over(b, options.penalty, shape);
    const Value lower = b.select(b.compare(Comparison::kGt, v, zero(b)), b.divide(v, penalty),
                                 b.multiply(v, penalty));
    v = b.select(options.penalised, lower, v);
  }
  const Value ids =
      options.temperature == kNoValue ? sample_greedy(b, v) : sample_drawn(b, v, options);
  return b.select(finite, ids, b.constant(kDecodeNotFinite));
}

std::vector<Value> lower_sample(const Lowering& l) {
  Builder& b = l.b;
  const int64_t limit = l.attributes[0];
  SampleValues options;
  if (l.has(1))
    options.penalised = b.compare(Comparison::kNe, b.reshape(l.in[1], {l.rows(0), limit}),
                                  b.constant(Element::kI8, 0));
  options.penalty = l.in[2];
  options.temperature = l.in[3];
  options.min_p = l.in[4];
  options.top_k = l.in[5];
  options.top_p = l.in[6];
  options.uniform = l.in[7];
  return {choose_ids(b, l.in[0], limit, options)};
}

}  // namespace adder::xla
