// causal_conv1d. Operands: x, weight, bias?, state, slots, valid?; attributes: silu, then the
// sequences.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"
#include "backends/xla/lower_sequences.h"

namespace adder::xla {
namespace {

class Convolution {
 public:
  explicit Convolution(const Lowering& l)
      : b_(l.b),
        weight_(l.in[1]),
        bias_(l.in[2]),
        taps_(l.rows(1)),
        channels_(l.cols(1)),
        silu_(l.flag(0)) {}

  // The state is the newest taps - 1 inputs, side by side.
  SequenceOp::Result step(Value x, Value states) {
    const int64_t history = taps_ - 1;
    std::vector<Value> inputs;
    for (int64_t k = 0; k < history; ++k)
      inputs.push_back(b_.slice_axis(states, 1, k * channels_, channels_));
    inputs.push_back(x);
    const std::vector<Value> next(inputs.begin() + 1, inputs.end());
    return {sum(inputs), next.size() == 1 ? next[0] : b_.concatenate(next, 1)};
  }

  // As many shifted products as there are taps, of the sequence with its state in front.
  SequenceOp::Result many(Value x, Value state, Value valid) {
    const int64_t history = taps_ - 1, rows = b_.type(x).shape[0];
    const Value whole = b_.concatenate({b_.reshape(state, {history, channels_}), x}, 0);
    std::vector<Value> inputs;
    for (int64_t k = 0; k < taps_; ++k) inputs.push_back(b_.slice_axis(whole, 0, k, rows));
    const Value tail =
        b_.dynamic_slice(whole, {valid, b_.constant(int32_t{0})}, {history, channels_});
    return {sum(inputs), b_.reshape(tail, {1, history * channels_})};
  }

 private:
  Value sum(const std::vector<Value>& inputs) {
    const int64_t rows = b_.type(inputs[0]).shape[0];
    Value total =
        bias_ == kNoValue ? b_.fill(zero(b_), {rows, channels_}) : as_rows(b_, bias_, rows);
    for (int64_t k = 0; k < taps_; ++k) {
      const Value tap = as_rows(b_, b_.slice_axis(weight_, 0, k, 1), rows);
      total = b_.add(total, b_.multiply(tap, inputs[static_cast<size_t>(k)]));
    }
    return silu_ ? silu(b_, total) : total;
  }

  Builder& b_;
  Value weight_, bias_;
  int64_t taps_, channels_;
  bool silu_;
};

}  // namespace

std::vector<Value> lower_conv(const Lowering& l) {
  Convolution conv(l);
  SequenceOp op;
  op.step = [&](const std::vector<Value>& rows, Value states) {
    return conv.step(rows[0], states);
  };
  op.many = [&](const std::vector<Value>& rows, Value state, Value valid) {
    return conv.many(rows[0], state, valid);
  };
  return lower_sequences(l.b, l.attributes.subspan(1), {l.in[0]}, l.in[3], l.in[4], l.in[5], op);
}

}  // namespace adder::xla
