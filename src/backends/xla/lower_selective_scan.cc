// selective_scan. Operands: u, delta, A_log2e, B, C, D?, z?, delta_bias?, state, slots, valid?;
// attributes: groups, softplus, then the sequences.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"
#include "backends/xla/lower_sequences.h"

namespace adder::xla {
namespace {

// Tokens of one turn of the loop: fewer turns, each of which costs a device a launch or more.
constexpr int64_t kScanUnroll = 4;

class SelectiveScan {
 public:
  explicit SelectiveScan(const Lowering& l)
      : l_(l), b_(l.b), d_state_(l.rows(2)), d_inner_(l.cols(2)), groups_(l.attributes[0]) {}

  SequenceOp::Result step(const std::vector<Value>& rows, Value states) {
    const Value dt = steps(rows[1]);
    const auto [y, next] = recur(rows[0], dt, rows[2], rows[3], states);
    return {finish(y, rows), next};
  }

  SequenceOp::Result many(const std::vector<Value>& rows, Value state, Value valid) {
    const int64_t n = b_.type(rows[0]).shape[0];
    // Padding must leave the state alone: dt = 0, and nothing infinite beside it.
    const Value counts = as_columns(b_, valid_rows(b_, n, valid), {n, d_inner_});
    const Value dt = b_.select(counts, steps(rows[1]), zero(b_));
    const Value u = b_.select(counts, rows[0], zero(b_));
    const Value group_counts = as_columns(b_, valid_rows(b_, n, valid), {n, groups_ * d_state_});
    const Value B = b_.select(group_counts, rows[2], zero(b_));
    const Value none = b_.constant(int32_t{0});
    const auto carried = b_.loop(
        {none, state, b_.fill(zero(b_), {n, d_inner_})},
        [&](std::span<const Value> c) {
          return std::vector<Value>{b_.compare(Comparison::kLt, c[0], valid)};
        },
        [&](std::span<const Value> c) {
          const auto block = [&](Value v) {
            return b_.dynamic_slice(v, {c[0], none}, {kScanUnroll, b_.type(v).shape[1]});
          };
          const Value parts[] = {block(u), block(dt), block(B), block(rows[3])};
          Value h = c[1];
          std::vector<Value> ys;
          for (int64_t t = 0; t < kScanUnroll; ++t) {
            const auto row = [&](size_t i) { return b_.slice_axis(parts[i], 0, t, 1); };
            const auto [y, next] = recur(row(0), row(1), row(2), row(3), h);
            ys.push_back(y);
            h = next;
          }
          return std::vector<Value>{b_.add(c[0], b_.constant(static_cast<int32_t>(kScanUnroll))), h,
                                    b_.dynamic_update(c[2], b_.concatenate(ys, 0), {c[0], none})};
        });
    return {finish(carried[2], rows), carried[1]};
  }

 private:
  Value steps(Value delta) {
    Value dt = delta;
    if (l_.has(7)) dt = b_.add(dt, as_rows(b_, l_.in[7], b_.type(delta).shape[0]));
    return l_.flag(1) ? softplus(b_, dt) : dt;
  }

  // (n, groups * d_state) to (n, d_state, d_inner): each channel has the value of its group.
  Value spread(Value v, int64_t n) {
    const Value by_state = b_.transpose(b_.reshape(v, {n, groups_, d_state_}), {0, 2, 1});
    return b_.reshape(b_.broadcast(by_state, {n, d_state_, groups_, d_inner_ / groups_}, {0, 1, 2}),
                      {n, d_state_, d_inner_});
  }

  // One token of each of n sequences.
  SequenceOp::Result recur(Value u, Value dt, Value B, Value C, Value states) {
    const int64_t n = b_.type(u).shape[0];
    const std::vector<int64_t> shape = {n, d_state_, d_inner_};
    const auto over_states = [&](Value v) { return b_.broadcast(v, shape, {0, 2}); };
    const Value A = b_.broadcast(l_.in[2], shape, {1, 2});
    const Value decay = exp2(b_, b_.multiply(over_states(dt), A));
    const Value added = b_.multiply(over_states(b_.multiply(dt, u)), spread(B, n));
    const Value h = b_.add(b_.multiply(decay, b_.reshape(states, shape)), added);
    const Value y = b_.reduce(Reducer::kAdd, b_.multiply(spread(C, n), h), {1});
    return {y, b_.reshape(h, {n, d_state_ * d_inner_})};
  }

  Value finish(Value y, const std::vector<Value>& rows) {
    const int64_t n = b_.type(y).shape[0];
    if (l_.has(5)) y = b_.add(y, b_.multiply(as_rows(b_, l_.in[5], n), rows[0]));
    return rows[4] == kNoValue ? y : b_.multiply(y, silu(b_, rows[4]));
  }

  const Lowering& l_;
  Builder& b_;
  int64_t d_state_, d_inner_, groups_;
};

}  // namespace

std::vector<Value> lower_selective_scan(const Lowering& l) {
  SelectiveScan scan(l);
  SequenceOp op;
  op.step = [&](const std::vector<Value>& rows, Value states) { return scan.step(rows, states); };
  op.many = [&](const std::vector<Value>& rows, Value state, Value valid) {
    return scan.many(rows, state, valid);
  };
  return lower_sequences(l.b, l.attributes.subspan(2),
                         {l.in[0], l.in[1], l.in[3], l.in[4], l.in[6]}, l.in[8], l.in[9], l.in[10],
                         op);
}

}  // namespace adder::xla
