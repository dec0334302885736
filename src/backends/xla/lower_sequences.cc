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

  std::vector<Value> packed(Value state, std::span<const int64_t> sequences) {
    std::vector<Value> outs(sequences.size() / 2, kNoValue);
    int64_t begin = 0, width = 0, total = 0;
    for (size_t i = 0; i < outs.size(); ++i) {
      const int64_t length = sequences[2 * i];
      if (length > 0 && sequences[2 * i + 1] != 0) {
        const Value slot = slot_of(static_cast<int64_t>(i));
        const Value before = take(state, slot);
        const auto [out, after] = length == 1 ? op_.step(cut(begin, 1, 1), before)
                                              : op_.many(cut(begin, length, bucket(length)), before,
                                                         b_.constant(static_cast<int32_t>(length)));
        outs[i] = b_.slice_axis(out, 0, 0, length);
        width = b_.type(out).shape[1];
        state = put(state, after, slot);
      }
      begin += length;
    }
    for (const Value v : rows_)
      if (v != kNoValue) total = b_.type(v).shape[0];
    if (width == 0) return {kNoValue, state};
    std::vector<Value> parts;
    for (size_t i = 0; i < outs.size(); ++i) {
      if (outs[i] == kNoValue && sequences[2 * i] > 0)
        outs[i] = b_.fill(zero(b_), {sequences[2 * i], width});
      if (outs[i] != kNoValue) parts.push_back(outs[i]);
    }
    if (total > begin) parts.push_back(b_.fill(zero(b_), {total - begin, width}));
    return {parts.size() == 1 ? parts[0] : b_.concatenate(parts, 0), state};
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
  // Rows of one sequence, filled up with zeros.
  std::vector<Value> cut(int64_t begin, int64_t length, int64_t padded) {
    std::vector<Value> parts;
    for (const Value v : rows_) {
      Value part = v;
      if (v != kNoValue) part = b_.slice_axis(v, 0, begin, length);
      if (v != kNoValue && padded > length)
        part = b_.pad(part, zero(b_), {0, 0}, {padded - length, 0});
      parts.push_back(part);
    }
    return parts;
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

void describe_sequences(const PackedBatch& batch, std::vector<int64_t>& attributes) {
  const SequenceForm form = sequence_form(batch);
  attributes.push_back(static_cast<int64_t>(form));
  if (form != SequenceForm::kPacked) return;
  for (size_t i = 0; i < static_cast<size_t>(batch.n_seqs()); ++i) {
    attributes.push_back(batch.seq_start[i + 1] - batch.seq_start[i]);
    attributes.push_back(batch.state_slot[i] >= 0);
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
