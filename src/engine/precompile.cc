#include "engine/precompile.h"

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "backends/registry.h"
#include "core/error.h"
#include "core/random.h"

namespace adder {
namespace {

[[noreturn]] void fail_no_programs(std::string_view device) {
  fail(ErrorCode::kUnsupported,
       "compile: expected a device that compiles programs (xla, xla:PLUGIN), got '{}'", device);
}

class Precompiler {
 public:
  Precompiler(Engine& engine, const PrecompileOptions& options) : engine_(engine), o_(options) {
    const int32_t slots = engine_.states().slots();
    for (const int32_t batch : o_.batches)
      ADDER_CHECK(batch >= 1 && batch <= slots, "batch: expected 1 to {} sequences, got {}", slots,
                  batch);
  }

  std::vector<Precompiled> run() {
    for (const int64_t length : o_.lengths) {
      prompts(length, 1);
      for (const int32_t batch : o_.batches)
        if (batch > 1) prompts(length, batch);
    }
    for (const int32_t batch : o_.batches) {
      begin(batch);
      part({PrecompiledPart::kStep, 0, batch}, [&] { step(batch); });
      if (engine_.decode_loop(batch) != nullptr)
        part({PrecompiledPart::kLoop, 0, batch}, [&] { loop(batch); });
    }
    return std::move(parts_);
  }

 private:
  ProgramCounts counts() const {
    const auto counts = program_counts(engine_.backend());
    if (!counts) fail_no_programs(engine_.backend().description());
    return *counts;
  }

  template <typename Work>
  void part(Precompiled made, Work&& work) {
    if (o_.progress)
      o_.progress(fmt::format("{} {}", precompiled_part_name(made.part),
                              made.length > 0 ? made.length : made.batch));
    using Clock = std::chrono::steady_clock;
    const ProgramCounts before = counts();
    const auto started = Clock::now();
    work();
    engine_.backend().synchronize();
    if (o_.cancel != nullptr && o_.cancel->load()) bad_input("compile: interrupted");
    const std::chrono::duration<double> seconds = Clock::now() - started;
    const ProgramCounts after = counts();
    made.compiled = after.compiled - before.compiled;
    made.from_cache = after.from_cache - before.from_cache;
    made.on_disk = after.on_disk - before.on_disk;
    made.seconds = seconds.count();
    parts_.push_back(made);
  }

  int32_t id(int64_t position) const {
    return static_cast<int32_t>(mix64(static_cast<uint64_t>(position)) %
                                static_cast<uint64_t>(engine_.vocab_limit()));
  }

  void prompts(int64_t length, int32_t batch) {
    GenerationRequest request;
    for (int64_t i = 0; i < length; ++i) request.prompt.push_back(id(i));
    // In a batch the first ones generate until the last prompt is there.
    const int64_t blocks = (length + engine_.block() - 1) / engine_.block();
    request.max_tokens = batch == 1 ? 1 : batch * blocks + 1;
    request.sampling = o_.sampling;
    request.ignore_eos = true;
    request.cancel = o_.cancel;
    const std::vector<GenerationRequest> all(static_cast<size_t>(batch), request);
    engine_.renew();
    part({PrecompiledPart::kPrompt, length, batch}, [&] {
      for (int i = 0; i < 2; ++i) generate(engine_, all);
    });
  }

  // Fresh sequences, as many as the batch.
  void begin(int32_t batch) {
    states_.clear();
    tokens_.clear();
    for (int32_t i = 0; i < batch; ++i) {
      states_.push_back(engine_.states().acquire());
      tokens_.push_back(id(i));
    }
  }

  SampleParams sample_params() const {
    const SamplingOptions& s = o_.sampling;
    SampleParams p{s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, {}, 0.5f};
    if (s.repeat_penalty != 1.0f && s.repeat_last_n > 0) p.recent = std::span(tokens_).first(1);
    return p;
  }

  void step(int32_t batch) {
    const auto n = static_cast<size_t>(batch);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < n; ++i)
      pieces.push_back({&states_[i], std::span(tokens_).subspan(i, 1)});
    std::vector<int32_t> rows(n), chosen(n);
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor hidden = engine_.step(pieces);
    const std::vector<SampleParams> params(n, sample_params());
    engine_.backend().sample({engine_.logits(hidden, rows), engine_.vocab_limit(), params, chosen});
  }

  void loop(int32_t batch) {
    DecodeLoop& loop = *engine_.decode_loop(batch);
    std::vector<DecodeRow> rows;
    for (size_t i = 0; i < states_.size(); ++i) {
      DecodeRow row;
      row.slot = states_[i].slot();
      row.token = tokens_[i];
      row.sampling = sample_params();
      if (!row.sampling.recent.empty()) row.repeat_last_n = o_.sampling.repeat_last_n;
      row.max_tokens = 1;
      row.stop_ids = engine_.eos_ids();
      rows.push_back(row);
    }
    loop.start(rows);
    loop.step();
    loop.read();
  }

  Engine& engine_;
  const PrecompileOptions& o_;
  std::vector<StateHandle> states_;  // of the engine
  std::vector<int32_t> tokens_;
  std::vector<Precompiled> parts_;
};

}  // namespace

std::string_view precompiled_part_name(PrecompiledPart part) {
  switch (part) {
    case PrecompiledPart::kPrompt:
      return "prompt";
    case PrecompiledPart::kStep:
      return "step";
    case PrecompiledPart::kLoop:
      return "loop";
  }
  return "?";
}

void check_precompiles(std::string_view device) {
  if (parse_device(device).backend != "xla") fail_no_programs(device);
}

std::vector<Precompiled> precompile(Engine& engine, const PrecompileOptions& options) {
  options.sampling.validate();
  ADDER_CHECK(!options.lengths.empty(), "lengths: expected at least 1 length, got none");
  for (const int64_t length : options.lengths)
    ADDER_CHECK(length >= 1, "lengths: expected at least 1 token, got {}", length);
  return Precompiler(engine, options).run();
}

}  // namespace adder
