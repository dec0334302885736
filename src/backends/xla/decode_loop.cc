#include "backends/xla/decode_loop.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "backends/xla/decode_program.h"
#include "backends/xla/lower_sample.h"
#include "backends/xla/xla_backend.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder::xla {
namespace {

class XlaDecodeLoop final : public DecodeLoop {
 public:
  XlaDecodeLoop(XlaBackend& backend, int64_t rows, int64_t vocab_limit, const DecodeStep& step)
      : recorder_(backend.recorder()), ids_(static_cast<size_t>(rows)) {
    shape_.rows = rows;
    shape_.steps = kDecodeSteps;
    shape_.vocab_limit = vocab_limit;
    CapturedStep captured = capture_step(backend, rows, vocab_limit, step);
    vocab_ = captured.vocab;
    logits_ = captured.logits;
    step_ = std::move(captured.step);
  }

  int64_t rows() const override { return shape_.rows; }
  int64_t steps_in_flight() const override { return kDecodeSteps; }

  void start(std::span<const DecodeRow> rows) override {
    check(rows, shape_.rows, vocab_);
    while (in_flight() > 0) read();
    shape_.stop_ids = 1;
    shape_.recent = 0;
    shape_.draws = false;
    for (const DecodeRow& r : rows) {
      if (r.slot < 0) continue;
      shape_.stop_ids = std::max(shape_.stop_ids, std::ssize(r.stop_ids));
      shape_.draws = shape_.draws || r.sampling.temperature != 0;
      if (r.sampling.repeat_penalty != 1.0f)
        shape_.recent = std::max<int64_t>(shape_.recent, r.repeat_last_n);
    }
    // Few sizes, so that few programs are compiled.
    shape_.stop_ids = bucket(shape_.stop_ids);
    shape_.recent = shape_.recent == 0 ? 0 : bucket(std::max<int64_t>(shape_.recent, 64));
    upload(rows);
    executable_ = nullptr;
  }

  void step() override {
    ADDER_CHECK(in_flight() < kDecodeSteps,
                "decode_loop: step: expected at most {} that have not been read, got {} more",
                kDecodeSteps, in_flight() + 1 - kDecodeSteps);
    ++pending_;
  }

  std::span<const int32_t> read() override {
    ADDER_CHECK(in_flight() > 0,
                "decode_loop: read: expected a step that has not been read, got {}", in_flight());
    if (next_ == done_) run();
    const auto n = static_cast<size_t>(shape_.rows);
    std::copy_n(chosen_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(next_++) * n), n,
                ids_.begin());
    return ids_;
  }

 private:
  int64_t in_flight() const { return pending_ + done_ - next_; }

  ArrayPtr make(Element element, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
    return recorder_.executor().upload({element, std::move(shape)}, bytes);
  }

  void upload(std::span<const DecodeRow> rows) {
    const auto n = static_cast<size_t>(shape_.rows);
    const auto stops = static_cast<size_t>(shape_.stop_ids);
    const auto recent = static_cast<size_t>(shape_.recent);
    const auto limit = static_cast<size_t>(shape_.vocab_limit);
    std::vector<int32_t> token(n), slot(n, -1), remaining(n), place(n), length(n), top_k(n, 1);
    std::vector<int32_t> ring(n * recent, -1), counts(recent > 0 ? n * limit : 0),
        stop(n * stops, -1);
    std::vector<uint64_t> index(n), top_p(n), seed(n);
    std::vector<float> penalty(n, 1.0f), temperature(n, 0.0f), min_p(n);
    for (size_t i = 0; i < rows.size(); ++i) {
      const DecodeRow& r = rows[i];
      if (r.slot < 0) continue;
      const SampleParams& p = r.sampling;
      token[i] = r.token;
      slot[i] = r.slot;
      remaining[i] = static_cast<int32_t>(
          std::min<int64_t>(r.max_tokens, std::numeric_limits<int32_t>::max()));
      index[i] = r.index;
      seed[i] = r.seed;
      std::ranges::copy(r.stop_ids, stop.begin() + static_cast<std::ptrdiff_t>(i * stops));
      temperature[i] = p.temperature;
      min_p[i] = p.min_p;
      top_k[i] = p.top_k == 0 ? std::numeric_limits<int32_t>::max() : p.top_k;
      top_p[i] = in_units(p.top_p);
      if (recent == 0 || p.repeat_penalty == 1.0f || r.repeat_last_n == 0) continue;
      penalty[i] = p.repeat_penalty;
      length[i] = r.repeat_last_n;
      place[i] = static_cast<int32_t>(p.recent.size()) % r.repeat_last_n;
      for (size_t k = 0; k < p.recent.size(); ++k) {
        const int32_t id = p.recent[k];
        ring[i * recent + k] = id;
        if (static_cast<size_t>(id) < limit) ++counts[i * limit + static_cast<size_t>(id)];
      }
    }
    const auto vector = [&](Element element, const auto& values) {
      return make(element, {shape_.rows}, std::as_bytes(std::span(values)));
    };
    kept_ = {vector(Element::kI32, token), vector(Element::kI32, slot),
             vector(Element::kI32, remaining), vector(Element::kU64, index)};
    options_ = {
        make(Element::kI32, {shape_.rows, shape_.stop_ids}, std::as_bytes(std::span(stop)))};
    if (recent > 0) {
      kept_.push_back(
          make(Element::kI32, {shape_.rows, shape_.recent}, std::as_bytes(std::span(ring))));
      kept_.push_back(vector(Element::kI32, place));
      kept_.push_back(
          make(Element::kI32, {shape_.rows, shape_.vocab_limit}, std::as_bytes(std::span(counts))));
      options_.push_back(vector(Element::kF32, penalty));
      options_.push_back(vector(Element::kI32, length));
    }
    if (shape_.draws) {
      options_.push_back(vector(Element::kF32, temperature));
      options_.push_back(vector(Element::kF32, min_p));
      options_.push_back(vector(Element::kI32, top_k));
      options_.push_back(vector(Element::kU64, top_p));
      options_.push_back(vector(Element::kU64, seed));
    }
  }

  Executable& program() {
    std::vector<int64_t> key = {
        -1,           shape_.rows, shape_.steps, shape_.vocab_limit, shape_.stop_ids, shape_.recent,
        shape_.draws, logits_};
    for (const Recorder::State& state : step_.states)
      key.insert(key.end(), {state.before, state.after});
    const auto words = step_.tape.words();
    key.insert(key.end(), words.begin(), words.end());
    return recorder_.executable(std::move(key),
                                [&] { return decode_program(shape_, step_, logits_); });
  }

  // What the step takes beside tokens and slots: its own arrays, and the states'.
  void append_states() {
    states_.clear();
    for (const Recorder::State& state : step_.states)
      states_.push_back(recorder_.take_state(state));
    for (size_t i = 2; i < step_.arguments.size(); ++i) {
      ArrayPtr array = step_.arguments[i];
      for (size_t k = 0; array == nullptr && k < states_.size(); ++k)
        if (step_.states[k].argument == static_cast<int32_t>(i)) array = std::move(states_[k]);
      arguments_.push_back(std::move(array));
    }
  }

  // The steps that have been asked for, at once. They are not asked for again where they fail.
  void run() {
    const auto steps = static_cast<int32_t>(std::exchange(pending_, 0));
    if (executable_ == nullptr) executable_ = &program();
    arguments_ = {recorder_.executor().upload_as(scalar_, std::as_bytes(std::span(&steps, 1)))};
    try {
      arguments_.insert(arguments_.end(), kept_.begin(), kept_.end());
      arguments_.insert(arguments_.end(), options_.begin(), options_.end());
      append_states();
      executable_->run_into(arguments_, results_);
      arguments_.clear();
      take_results();
    } catch (const std::exception& failure) {
      arguments_.clear();
      results_.clear();
      recorder_.lose_states(step_.states, failure);
      throw;
    }
    next_ = 0;
    done_ = steps;
  }

  void take_results() {
    const auto kept = static_cast<size_t>(kept_values(shape_));
    chosen_.resize(static_cast<size_t>(kDecodeSteps * shape_.rows));
    recorder_.download(*results_[kept], std::as_writable_bytes(std::span(chosen_)),
                       recorder_.last_program());
    kept_.assign(results_.begin(), results_.begin() + static_cast<std::ptrdiff_t>(kept));
    for (size_t k = 0; k < step_.states.size(); ++k)
      recorder_.put_state(step_.states[k], results_[kept + 1 + k]);
    results_.clear();
  }

  Recorder& recorder_;
  DecodeShape shape_;
  int64_t vocab_ = 0;
  Ref logits_ = kNoRef;
  Recorder::Capture step_;
  std::vector<ArrayPtr> kept_, options_;
  const TypePtr scalar_ = std::make_shared<const Type>(Type{Element::kI32, {}});
  Executable* executable_ = nullptr;                    // null: to be found
  std::vector<ArrayPtr> arguments_, states_, results_;  // of the run
  std::vector<int32_t> ids_, chosen_;
  int64_t pending_ = 0;          // steps that have not been run
  int64_t next_ = 0, done_ = 0;  // of those that have
};

}  // namespace

CapturedStep capture_step(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                          const DecodeStep& step) {
  ADDER_CHECK(rows >= 1, "decode_loop: rows: expected at least 1, got {}", rows);
  const auto n = static_cast<size_t>(rows);
  std::vector<int32_t> starts(n + 1), slots(n), tokens(n, 0), ids(n);
  std::iota(starts.begin(), starts.end(), 0);
  std::iota(slots.begin(), slots.end(), 0);  // any that pass the checks
  const Type type{Element::kI32, {rows}};
  const Type types[] = {type, type};
  Recorder& recorder = backend.recorder();
  const std::vector<Ref> refs = recorder.begin_capture(types);
  CapturedStep captured;
  try {
    backend.set_loop_values({tokens.data(), slots.data(), refs[0], refs[1]});
    const Tensor logits = step(tokens, {starts, slots});
    check(SampleArgs{logits, vocab_limit, std::vector<SampleParams>(n), ids});
    captured.vocab = logits.dim(1);
    captured.logits = recorder.load(logits);
    captured.step = recorder.end_capture();
    backend.set_loop_values({});
  } catch (...) {
    backend.set_loop_values({});
    recorder.drop_capture();
    throw;
  }
  return captured;
}

std::unique_ptr<DecodeLoop> make_decode_loop(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                                             const DecodeStep& step) {
  return std::make_unique<XlaDecodeLoop>(backend, rows, vocab_limit, step);
}

}  // namespace adder::xla
