#include "backends/xla/lower_sequences.h"

#include <algorithm>

#include "backends/xla/lower_math.h"
#include "backends/xla/recorder.h"

namespace adder::xla {
namespace {

class Sequences {
 public:
  Sequences(Builder& b, const std::vector<Value>& rows, Value slots, const SequenceOp& op)
      : b_(b), rows_(rows), slots_(slots), op_(op) {}

  std::vector<Value> steps(Value state) {
    const int64_t n = b_.type(slots_).shape[0];
    const Value none = b_.constant(int32_t{0});
    const Value clamped = b_.maximum(slots_, none);
    const Value active = b_.compare(Comparison::kGe, slots_, none);
    const Value before = b_.gather_rows(state, clamped);
    const SequenceOp::Result result = op_.step(rows_, before);
    const Value out = result.out, after = result.state;
    const Value masked = b_.select(as_columns(b_, active, b_.type(out).shape), out, zero(b_));
    if (n == 1) {
      const Value row = b_.select(as_columns(b_, active, b_.type(after).shape), after, before);
      return {masked, put(state, row, b_.reshape(clamped, {}))};
    }
    // One after the other: a row without a slot writes back what is there.
    const int64_t elements = b_.type(state).shape[1];
    const auto carried = b_.loop(
        {none, state},
        [&](std::span<const Value> c) {
          return std::vector<Value>{
              b_.compare(Comparison::kLt, c[0], b_.constant(static_cast<int32_t>(n)))};
        },
        [&](std::span<const Value> c) {
          const Value at = b_.reshape(b_.dynamic_slice(clamped, {c[0]}, {1}), {});
          const Value is_active = b_.reshape(b_.dynamic_slice(active, {c[0]}, {1}), {});
          const Value row = b_.dynamic_slice(after, {c[0], none}, {1, elements});
          const Value old = b_.dynamic_slice(c[1], {at, none}, {1, elements});
          return std::vector<Value>{b_.add(c[0], b_.constant(int32_t{1})),
                                    put(c[1], b_.select(is_active, row, old), at)};
        });
    return {masked, carried[1]};
  }

  std::vector<Value> single(Value state, Value valid) {
    const Value slot = slot_of(0);
    const auto [out, after] = op_.many(rows_, take(state, slot), valid);
    return {out, put(state, after, slot)};
  }

  // description: the number of single rows, then the padded lengths.
  std::vector<Value> packed(Value state, std::span<const int64_t> description) {
    const int64_t singles = description[0];
    const auto lengths = description.subspan(1);
    // Behind the rows there is room for the longest sequence, whose padding must lie somewhere.
    int64_t room = 1;
    for (const int64_t length : lengths) room = std::max(room, length);
    int64_t n = 0;
    for (const Value v : rows_)
      if (v != kNoValue) n = b_.type(v).shape[0];
    std::vector<Value> roomy;
    for (const Value v : rows_)
      roomy.push_back(v == kNoValue ? v : b_.pad(v, zero(b_), {0, 0}, {room, 0}));
    const Value none = b_.constant(int32_t{0});
    Value out = kNoValue;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t at = 2 * singles + 3 * static_cast<int64_t>(i);
      const Value begin = slot_of(at), valid = slot_of(at + 1), slot = slot_of(at + 2);
      const Value active = b_.compare(Comparison::kGe, slot, none);
      const Value clamped = b_.maximum(slot, none);
      std::vector<Value> part;
      part.reserve(roomy.size());
      for (const Value v : roomy)
        part.push_back(v == kNoValue
                           ? v
                           : b_.dynamic_slice(v, {begin, none}, {lengths[i], b_.type(v).shape[1]}));
      const Value before = take(state, clamped);
      const SequenceOp::Result result = op_.many(part, before, valid);
      state = put(state, b_.select(active, result.state, before), clamped);
      const Value masked = b_.select(active, result.out, zero(b_));
      if (out == kNoValue) out = b_.fill(zero(b_), {n + room, b_.type(masked).shape[1]});
      // In the order of the rows: the next sequence lies over the padding of this one.
      out = b_.dynamic_update(out, masked, {begin, none});
    }
    if (singles == 0) return {b_.slice_axis(out, 0, 0, n), state};
    const Value where = b_.slice_axis(slots_, 0, 0, singles);
    std::vector<Value> part;
    part.reserve(roomy.size());
    for (const Value v : roomy) part.push_back(v == kNoValue ? v : b_.gather_rows(v, where));
    const Value slots = b_.slice_axis(slots_, 0, singles, singles);
    const std::vector<Value> stepped = Sequences(b_, part, slots, op_).steps(state);
    const int64_t width = b_.type(stepped[0]).shape[1];
    if (out == kNoValue) out = b_.fill(zero(b_), {n + room, width});
    const auto carried = b_.loop(
        {none, out},
        [&](std::span<const Value> c) {
          return std::vector<Value>{
              b_.compare(Comparison::kLt, c[0], b_.constant(static_cast<int32_t>(singles)))};
        },
        [&](std::span<const Value> c) {
          const Value to = b_.reshape(b_.dynamic_slice(where, {c[0]}, {1}), {});
          const Value row = b_.dynamic_slice(stepped[0], {c[0], none}, {1, width});
          return std::vector<Value>{b_.add(c[0], b_.constant(int32_t{1})),
                                    b_.dynamic_update(c[1], row, {to, none})};
        });
    return {b_.slice_axis(carried[1], 0, 0, n), stepped[1]};
  }

 private:
  Value slot_of(int64_t sequence) { return b_.reshape(b_.slice_axis(slots_, 0, sequence, 1), {}); }
  Value take(Value state, Value slot) {
    const int64_t elements = b_.type(state).shape[1];
    return b_.dynamic_slice(state, {slot, b_.constant(int32_t{0})}, {1, elements});
  }
  Value put(Value state, Value row, Value slot) {
    return b_.dynamic_update(state, row, {slot, b_.constant(int32_t{0})});
  }
  Builder& b_;
  const std::vector<Value>& rows_;
  Value slots_;
  const SequenceOp& op_;
};

}  // namespace

SequenceForm sequence_form(const PackedBatch& batch) {
  const int64_t tokens = batch.n_tokens(), sequences = batch.n_seqs();
  bool single_rows = tokens == sequences;
  int64_t active = 0;
  for (size_t i = 0; i < static_cast<size_t>(sequences); ++i) {
    const int32_t length = batch.seq_start[i + 1] - batch.seq_start[i];
    single_rows = single_rows && length == 1;
    if (length == tokens && batch.state_slot[i] >= 0) ++active;
  }
  if (single_rows) return SequenceForm::kStep;
  return sequences == 1 && active == 1 && tokens > 1 ? SequenceForm::kSingle
                                                     : SequenceForm::kPacked;
}

namespace {

int32_t sequence_length(const PackedBatch& batch, size_t i) {
  return batch.seq_start[i + 1] - batch.seq_start[i];
}

int64_t padded_singles(const PackedBatch& batch) {
  int64_t singles = 0;
  for (size_t i = 0; i < batch.state_slot.size(); ++i) singles += sequence_length(batch, i) == 1;
  return bucket(singles);
}

}  // namespace

void describe_sequences(const PackedBatch& batch, std::vector<int64_t>& attributes) {
  const SequenceForm form = sequence_form(batch);
  attributes.push_back(static_cast<int64_t>(form));
  if (form != SequenceForm::kPacked) return;
  attributes.push_back(padded_singles(batch));
  for (size_t i = 0; i < batch.state_slot.size(); ++i)
    if (sequence_length(batch, i) > 1) attributes.push_back(bucket(sequence_length(batch, i)));
}

void place_sequences(const PackedBatch& batch, int64_t rows, std::vector<int32_t>& slots) {
  slots.clear();
  if (sequence_form(batch) != SequenceForm::kPacked) {
    slots.assign(batch.state_slot.begin(), batch.state_slot.end());
    if (sequence_form(batch) == SequenceForm::kStep) slots.resize(static_cast<size_t>(rows), -1);
    return;
  }
  const auto singles = static_cast<size_t>(padded_singles(batch));
  slots.assign(singles, static_cast<int32_t>(rows));  // the first row behind them
  slots.resize(2 * singles, -1);
  size_t next = 0;
  for (size_t i = 0; i < batch.state_slot.size(); ++i) {
    const int32_t length = sequence_length(batch, i);
    if (length == 1) {
      slots[next] = batch.seq_start[i];
      slots[singles + next++] = batch.state_slot[i];
    } else if (length > 1) {
      slots.insert(slots.end(), {batch.seq_start[i], length, batch.state_slot[i]});
    }
  }
}

std::vector<Value> lower_sequences(Builder& b, std::span<const int64_t> description,
                                   const std::vector<Value>& rows, Value state, Value slots,
                                   Value valid, const SequenceOp& op) {
  Sequences sequences(b, rows, slots, op);
  switch (static_cast<SequenceForm>(description[0])) {
    case SequenceForm::kStep:
      return sequences.steps(state);
    case SequenceForm::kSingle:
      return sequences.single(state, valid);
    default:
      return sequences.packed(state, description.subspan(1));
  }
}

Value valid_rows(Builder& b, int64_t rows, Value valid) {
  return b.compare(Comparison::kLt, b.iota({Element::kI32, {rows}}, 0), valid);
}

}  // namespace adder::xla
