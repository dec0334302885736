// ssd_scan. Operands: x, dt, A_log2e, B, C, D?, z?, dt_bias?, state, slots, valid?; attributes:
// heads, headdim, groups, d_state, softplus, dt_min, dt_max, D per element, then the sequences.
//
// Many tokens go in chunks of Q = 64 rows (arXiv 2405.21060, section 6), heads h, rows t and s:
//   l[h, t, s] = sum of dt * A_log2e over s < k <= t, by adding and never as a difference of sums
//   Y[h, t]    = sum_s exp2(l[h, t, s]) (C[t] . B[s]) dt[s] x[s]  +  exp2(L[h, t]) C[t] . S
//   S          = exp2(L[h, Q - 1]) S + sum_s exp2(l[h, Q - 1, s]) dt[s] x[s] (x) B[s]
// with L the sum from the chunk's first row on. C . B is computed once for each group.
#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"
#include "backends/xla/lower_sequences.h"
#include "kernels/ssd_scan.h"

namespace adder::xla {
namespace {

constexpr int64_t kSsdRows = kSsdChunkAlign;

class Ssd {
 public:
  explicit Ssd(const Lowering& l)
      : l_(l),
        b_(l.b),
        heads_(l.attributes[0]),
        headdim_(l.attributes[1]),
        groups_(l.attributes[2]),
        d_state_(l.attributes[3]),
        per_group_(heads_ / groups_) {}

  SequenceOp::Result step(const std::vector<Value>& rows, Value states) {
    const int64_t n = b_.type(rows[0]).shape[0];
    const std::vector<int64_t> shape = {n, heads_, headdim_, d_state_};
    const Value dt = steps(rows[1]);
    const Value decay = exp2(b_, b_.multiply(dt, as_rows(b_, l_.in[2], n)));
    const Value x = b_.reshape(rows[0], {n, heads_, headdim_});
    const Value dtx = b_.multiply(b_.broadcast(dt, {n, heads_, headdim_}, {0, 1}), x);
    const Value added = b_.multiply(b_.broadcast(dtx, shape, {0, 1, 2}),
                                    b_.broadcast(per_head(rows[2]), shape, {0, 1, 3}));
    const Value S =
        b_.add(b_.multiply(b_.broadcast(decay, shape, {0, 1}), b_.reshape(states, shape)), added);
    const Value y = b_.reduce(
        Reducer::kAdd, b_.multiply(b_.broadcast(per_head(rows[3]), shape, {0, 1, 3}), S), {3});
    return {finish(b_.reshape(y, {n, heads_ * headdim_}), rows),
            b_.reshape(S, {n, heads_ * headdim_ * d_state_})};
  }

  SequenceOp::Result many(const std::vector<Value>& rows, Value state, Value valid) {
    const int64_t n = b_.type(rows[0]).shape[0];
    const int64_t padded = (n + kSsdRows - 1) / kSsdRows * kSsdRows;
    const Value counts = valid_rows(b_, padded, valid);
    // Padding has dt = 0 after the softplus, and nothing infinite beside it.
    const auto whole_chunks = [&](Value v) {
      const int64_t width = b_.type(v).shape[1];
      if (padded > n) v = b_.pad(v, zero(b_), {0, 0}, {padded - n, 0});
      return b_.select(as_columns(b_, counts, {padded, width}), v, zero(b_));
    };
    const Value dt = whole_chunks(steps(rows[1])), x = whole_chunks(rows[0]);
    const Value B = whole_chunks(rows[2]), C = whole_chunks(rows[3]);
    const Value none = b_.constant(int32_t{0});
    const auto carried = b_.loop(
        {none, b_.reshape(state, {heads_, headdim_, d_state_}),
         b_.fill(zero(b_), {padded, heads_ * headdim_})},
        [&](std::span<const Value> c) {
          return std::vector<Value>{b_.compare(Comparison::kLt, c[0], valid)};
        },
        [&](std::span<const Value> c) {
          const auto rows_of = [&](Value v) {
            return b_.dynamic_slice(v, {c[0], none}, {kSsdRows, b_.type(v).shape[1]});
          };
          const auto [y, S] = chunk(rows_of(x), rows_of(dt), rows_of(B), rows_of(C), c[1]);
          return std::vector<Value>{b_.add(c[0], b_.constant(static_cast<int32_t>(kSsdRows))), S,
                                    b_.dynamic_update(c[2], y, {c[0], none})};
        });
    return {finish(b_.slice_axis(carried[2], 0, 0, n), rows),
            b_.reshape(carried[1], {1, heads_ * headdim_ * d_state_})};
  }

 private:
  Value steps(Value raw) {
    Value dt = raw;
    if (l_.has(7)) dt = b_.add(dt, as_rows(b_, l_.in[7], b_.type(raw).shape[0]));
    if (l_.flag(4)) dt = softplus(b_, dt);
    dt = b_.maximum(dt, b_.constant(l_.real(5)));
    return b_.minimum(dt, b_.constant(l_.real(6)));
  }

  // (n, groups * d_state) to (n, heads, d_state).
  Value per_head(Value v) {
    const int64_t n = b_.type(v).shape[0];
    return b_.reshape(b_.broadcast(b_.reshape(v, {n, groups_, d_state_}),
                                   {n, groups_, per_group_, d_state_}, {0, 1, 3}),
                      {n, heads_, d_state_});
  }

  SequenceOp::Result chunk(Value x, Value dt, Value B, Value C, Value S) {
    constexpr int64_t kQ = kSsdRows;
    const std::vector<int64_t> square = {heads_, kQ, kQ};
    const Value by_head = b_.transpose(dt, {1, 0});  // (heads, rows)
    const Value decays =
        b_.multiply(by_head, b_.broadcast(b_.reshape(l_.in[2], {heads_}), {heads_, kQ}, {0}));
    const Value t = b_.iota({Element::kI32, square}, 1), s = b_.iota({Element::kI32, square}, 2);
    const Value later = b_.select(b_.compare(Comparison::kGt, t, s),
                                  b_.broadcast(decays, square, {0, 1}), zero(b_));
    const Value between = cumulative_sum(b_, later, 1);
    const Value seen = b_.select(b_.compare(Comparison::kGe, t, s), exp2(b_, between), zero(b_));
    const Value since_start = exp2(b_, cumulative_sum(b_, decays, 1));  // (heads, rows)
    const Value to_end = b_.reshape(exp2(b_, b_.slice_axis(between, 1, kQ - 1, 1)), {heads_, kQ});

    const Value b3 = b_.reshape(B, {kQ, groups_, d_state_});
    const Value c3 = b_.reshape(C, {kQ, groups_, d_state_});
    const Value cb = b_.dot(c3, b3, {{1}, {1}, {2}, {2}});  // (groups, t, s)
    const Value cb_heads =
        b_.reshape(b_.broadcast(cb, {groups_, per_group_, kQ, kQ}, {0, 2, 3}), square);
    const Value dtx = b_.multiply(b_.broadcast(dt, {kQ, heads_, headdim_}, {0, 1}),
                                  b_.reshape(x, {kQ, heads_, headdim_}));
    // (heads, t, headdim)
    const Value within = b_.dot(b_.multiply(cb_heads, seen), dtx, {{0}, {1}, {2}, {0}});
    const Value grouped = b_.reshape(S, {groups_, per_group_ * headdim_, d_state_});
    // (groups, t, per group * headdim)
    const Value carried = b_.dot(c3, grouped, {{1}, {0}, {2}, {2}});
    const Value from_state = b_.reshape(
        b_.transpose(b_.reshape(carried, {groups_, kQ, per_group_, headdim_}), {0, 2, 1, 3}),
        {heads_, kQ, headdim_});
    const std::vector<int64_t> rows = {heads_, kQ, headdim_};
    const Value y =
        b_.add(within, b_.multiply(b_.broadcast(since_start, rows, {0, 1}), from_state));

    const Value weighted = b_.multiply(
        dtx, b_.broadcast(b_.transpose(to_end, {1, 0}), {kQ, heads_, headdim_}, {0, 1}));
    // (groups, per group * headdim, d_state)
    const Value added = b_.dot(b_.reshape(weighted, {kQ, groups_, per_group_ * headdim_}), b3,
                               {{1}, {1}, {0}, {0}});
    const Value last = b_.reshape(b_.slice_axis(since_start, 1, kQ - 1, 1), {heads_});
    const std::vector<int64_t> state = {heads_, headdim_, d_state_};
    const Value next =
        b_.add(b_.multiply(b_.broadcast(last, state, {0}), S), b_.reshape(added, state));
    return {b_.reshape(b_.transpose(y, {1, 0, 2}), {kQ, heads_ * headdim_}), next};
  }

  Value finish(Value y, const std::vector<Value>& rows) {
    const int64_t n = b_.type(y).shape[0], width = heads_ * headdim_;
    if (l_.has(5)) {
      Value D = b_.reshape(l_.in[5], {b_.type(l_.in[5]).size()});
      if (!l_.flag(7)) D = b_.reshape(b_.broadcast(D, {heads_, headdim_}, {0}), {width});
      y = b_.add(y, b_.multiply(as_rows(b_, D, n), rows[0]));
    }
    return rows[4] == kNoValue ? y : b_.multiply(y, silu(b_, rows[4]));
  }

  const Lowering& l_;
  Builder& b_;
  int64_t heads_, headdim_, groups_, d_state_, per_group_;
};

}  // namespace

std::vector<Value> lower_ssd(const Lowering& l) {
  Ssd ssd(l);
  SequenceOp op;
  op.step = [&](const std::vector<Value>& rows, Value states) { return ssd.step(rows, states); };
  op.many = [&](const std::vector<Value>& rows, Value state, Value valid) {
    return ssd.many(rows, state, valid);
  };
  return lower_sequences(l.b, l.attributes.subspan(8),
                         {l.in[0], l.in[1], l.in[3], l.in[4], l.in[6]}, l.in[8], l.in[9], l.in[10],
                         op);
}

}  // namespace adder::xla
