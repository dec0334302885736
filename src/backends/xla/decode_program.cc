#include "backends/xla/decode_program.h"

#include <algorithm>

#include "backends/xla/lower.h"
#include "backends/xla/lower_math.h"
#include "backends/xla/lower_sample.h"
#include "kernels/decode_loop.h"

namespace adder::xla {
namespace {

class DecodeProgram {
 public:
  DecodeProgram(const DecodeShape& shape, const Recorder::Capture& step, Ref logits)
      : s_(shape), step_(step), logits_(logits), b_(program_) {}

  Program make() {
    steps_ = b_.argument({Element::kI32, {}});
    std::vector<Value> initial = {b_.constant(int32_t{0})};
    for (int64_t i = 0; i < 3; ++i) initial.push_back(vector_argument(Element::kI32));
    initial.push_back(vector_argument(Element::kU64));
    if (s_.recent > 0) {
      initial.push_back(b_.argument({Element::kI32, {s_.rows, s_.recent}}));
      initial.push_back(vector_argument(Element::kI32));
      initial.push_back(b_.argument({Element::kI32, {s_.rows, s_.vocab_limit}}));
    }
    stop_ = b_.argument({Element::kI32, {s_.rows, s_.stop_ids}});
    if (s_.recent > 0) {
      options_.penalty = vector_argument(Element::kF32);
      ring_length_ = vector_argument(Element::kI32);
    }
    if (s_.draws) {
      options_.temperature = vector_argument(Element::kF32);
      options_.min_p = vector_argument(Element::kF32);
      options_.top_k = vector_argument(Element::kI32);
      options_.top_p = vector_argument(Element::kU64);
      seed_ = vector_argument(Element::kU64);
    }
    const std::vector<TapeArgument> arguments = tape_arguments(step_.tape.words());
    const auto first = static_cast<int32_t>(program_.main.arguments.size());
    for (size_t i = 2; i < arguments.size(); ++i) {
      values_.resize(std::max(values_.size(), static_cast<size_t>(arguments[i].ref) + 1), kNoValue);
      values_[static_cast<size_t>(arguments[i].ref)] = b_.argument(arguments[i].type);
    }
    out_at_ = initial.size();
    initial.push_back(b_.fill(b_.constant(kDecodeInert), {s_.steps, s_.rows}));
    for (const Recorder::State& state : step_.states)
      initial.push_back(values_[static_cast<size_t>(state.before)]);

    const auto carried = b_.loop(
        initial, [&](std::span<const Value> c) { return std::vector<Value>{goes_on(c)}; },
        [&](std::span<const Value> c) { return turn(c); });
    for (size_t i = 1; i <= out_at_; ++i) b_.result(carried[i]);
    for (size_t i = 0; i < step_.states.size(); ++i) {
      int32_t donor = -1;
      for (size_t k = 2; k < arguments.size(); ++k)
        if (arguments[k].ref == step_.states[i].before) donor = first + static_cast<int32_t>(k) - 2;
      b_.result(carried[out_at_ + 1 + i], donor);
    }
    return std::move(program_);
  }

 private:
  Value vector_argument(Element element) { return b_.argument({element, {s_.rows}}); }
  Value u64(uint64_t v) { return b_.constant(Element::kU64, v); }
  Value over(Value v, std::vector<int64_t> shape) { return b_.broadcast(v, std::move(shape), {0}); }

  Value is_active(Value slot) { return b_.compare(Comparison::kGe, slot, b_.constant(int32_t{0})); }

  Value goes_on(std::span<const Value> c) {
    return b_.binary(Opcode::kAnd, b_.compare(Comparison::kLt, c[0], steps_),
                     b_.reduce(Reducer::kOr, is_active(c[2]), {0}));
  }

  // splitmix64's output function, as core/random.h has it.
  Value mix(Value x) {
    const auto fold = [&](Value v, uint64_t by) {
      return b_.binary(Opcode::kXor, v, b_.binary(Opcode::kShiftRightLogical, v, u64(by)));
    };
    x = b_.multiply(fold(x, 30), u64(0xbf58476d1ce4e5b9u));
    x = b_.multiply(fold(x, 27), u64(0x94d049bb133111ebu));
    return fold(x, 31);
  }
  // uniform_at(seed, index), in units of 2^-32.
  Value uniform(Value index) {
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
    const Value bits =
        mix(b_.add(mix(b_.add(seed_, u64(kStep))), b_.multiply(b_.add(index, u64(1)), u64(kStep))));
    return b_.binary(Opcode::kShiftLeft, b_.binary(Opcode::kShiftRightLogical, bits, u64(40)),
                     u64(8));
  }

  std::vector<Value> turn(std::span<const Value> c) {
    const Value none = b_.constant(int32_t{0}), one = b_.constant(int32_t{1});
    const Value token = c[1], slot = c[2], active = is_active(slot);
    std::vector<Value> values = values_;
    values.resize(std::max<size_t>(values.size(), 2), kNoValue);
    values[0] = token;
    values[1] = slot;
    for (size_t i = 0; i < step_.states.size(); ++i)
      values[static_cast<size_t>(step_.states[i].before)] = c[out_at_ + 1 + i];
    lower_tape(b_, step_.tape.words(), values);

    SampleValues options = options_;
    if (s_.recent > 0) options.penalised = b_.compare(Comparison::kGt, c[7], none);
    if (s_.draws) options.uniform = uniform(c[4]);
    const Value ids = choose_ids(b_, values[static_cast<size_t>(logits_)], s_.vocab_limit, options);

    std::vector<Value> next = {b_.add(c[0], one)};
    const Value remaining = b_.subtract(c[3], one);
    const std::vector<int64_t> stops = {s_.rows, s_.stop_ids};
    const Value stopped =
        b_.reduce(Reducer::kOr, b_.compare(Comparison::kEq, stop_, over(ids, stops)), {1});
    const Value chosen = b_.binary(Opcode::kAnd, active, b_.compare(Comparison::kGe, ids, none));
    Value goes_on = b_.binary(Opcode::kAnd, chosen, b_.unary(Opcode::kNot, stopped));
    goes_on = b_.binary(Opcode::kAnd, goes_on, b_.compare(Comparison::kGt, remaining, none));
    next.push_back(b_.select(goes_on, ids, token));
    next.push_back(b_.select(goes_on, slot, b_.constant(int32_t{-1})));
    next.push_back(remaining);
    next.push_back(b_.add(c[4], u64(1)));
    if (s_.recent > 0) push_recent(c, ids, chosen, next);
    const Value row = b_.reshape(b_.select(active, ids, b_.constant(kDecodeInert)), {1, s_.rows});
    next.push_back(b_.dynamic_update(c[out_at_], row, {c[0], none}));
    for (const Recorder::State& state : step_.states)
      next.push_back(values[static_cast<size_t>(state.after)]);
    return next;
  }

  // The chosen id takes the place of the oldest one.
  void push_recent(std::span<const Value> c, Value ids, Value chosen, std::vector<Value>& next) {
    const Value none = b_.constant(int32_t{0}), one = b_.constant(int32_t{1});
    const Value missing = b_.constant(int32_t{-1});
    const Value ring = c[5], place = c[6], counts = c[7];
    const std::vector<int64_t> ring_shape = {s_.rows, s_.recent};
    const std::vector<int64_t> vocab = {s_.rows, s_.vocab_limit};
    // A row that keeps no ids has a ring of length 0.
    const Value keeps =
        b_.binary(Opcode::kAnd, chosen, b_.compare(Comparison::kGt, ring_length_, none));
    const Value here =
        b_.binary(Opcode::kAnd, over(keeps, ring_shape),
                  b_.compare(Comparison::kEq, b_.iota({Element::kI32, ring_shape}, 1),
                             over(place, ring_shape)));
    const Value oldest = b_.reduce(Reducer::kMaximum, b_.select(here, ring, missing), {1});
    const Value newest = b_.select(keeps, ids, missing);
    const auto count_of = [&](Value id) {
      const Value is =
          b_.compare(Comparison::kEq, b_.iota({Element::kI32, vocab}, 1), over(id, vocab));
      return b_.select(is, b_.fill(one, vocab), none);
    };
    const Value moved = b_.add(place, one);
    const Value wrapped = b_.select(b_.compare(Comparison::kGe, moved, ring_length_), none, moved);
    next.push_back(b_.select(here, over(ids, ring_shape), ring));
    next.push_back(b_.select(keeps, wrapped, place));
    next.push_back(b_.subtract(b_.add(counts, count_of(newest)), count_of(oldest)));
  }

  DecodeShape s_;
  const Recorder::Capture& step_;
  Ref logits_;
  Program program_;
  Builder b_;
  Value steps_ = kNoValue, stop_ = kNoValue, ring_length_ = kNoValue, seed_ = kNoValue;
  SampleValues options_;
  std::vector<Value> values_;  // of the tape's arguments
  size_t out_at_ = 0;          // the chosen ids among what is carried; the states follow
};

}  // namespace

int64_t kept_values(const DecodeShape& shape) {
  return shape.recent > 0 ? 7 : 4;
}

Program decode_program(const DecodeShape& shape, const Recorder::Capture& step, Ref logits) {
  return DecodeProgram(shape, step, logits).make();
}

}  // namespace adder::xla
