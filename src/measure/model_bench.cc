#include "measure/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "backends/registry.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/random.h"

namespace adder {
namespace {

struct Samples {
  std::vector<double> seconds, joules;
  std::vector<OpTimes> ops;

  void add_ops(const std::vector<OpTimes>& times) {
    for (const OpTimes& t : times) {
      const auto same = std::find_if(ops.begin(), ops.end(), [&](const OpTimes& o) {
        return o.name == t.name && o.detail == t.detail;
      });
      if (same == ops.end()) {
        ops.push_back(t);
        continue;
      }
      same->calls += t.calls;
      same->seconds += t.seconds;
      same->cost += t.cost;
    }
  }

  PhaseResult result(int32_t batch, int64_t tokens) const {
    PhaseResult r{batch, tokens, spread_of(seconds), {}, ops, 0};
    if (!joules.empty()) r.joules = spread_of(joules).median;
    r.profiled_seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    return r;
  }
};

class ModelBench {
 public:
  ModelBench(Engine& engine, const ModelBenchOptions& options) : engine_(engine), o_(options) {
    ADDER_CHECK(o_.prompt >= 1 && o_.gen >= 1 && o_.repeat >= 1,
                "bench: expected prompt, gen and repeat of 1 or more, got {}, {} and {}", o_.prompt,
                o_.gen, o_.repeat);
    ADDER_CHECK(!o_.batches.empty() && *std::min_element(o_.batches.begin(), o_.batches.end()) >= 1,
                "bench: expected batches of 1 or more sequences");
    const auto ids = static_cast<uint64_t>(engine.vocab_limit());
    for (int64_t i = 0; i < o_.prompt; ++i) {
      prompt_.push_back(static_cast<int32_t>(mix64(static_cast<uint64_t>(i)) % ids));
    }
    decode_.resize(o_.batches.size());
  }

  ModelBenchResult run() {
    round("warm-up");
    prefill_ = {};
    for (Samples& s : decode_) s = {};
    ModelBenchResult result;
    result.peak_resident_bytes = peak_resident_bytes();
    auto probe = make_machine_probe(o_.device, o_.threads);
    CeilingSampler ceilings(*probe);
    ceilings.sample();
    for (int i = 0; i < o_.repeat; ++i) {
      round(fmt::format("repeat {} of {}", i + 1, o_.repeat));
      ceilings.sample();
    }
    result.prefill = prefill_.result(1, o_.prompt);
    for (size_t i = 0; i < decode_.size(); ++i) {
      result.decode.push_back(decode_[i].result(o_.batches[i], o_.gen));
    }
    result.cost = model_cost(engine_.checkpoint(), engine_.config());
    result.rates = ceilings.rates();
    return result;
  }

 private:
  // Everything once.
  void round(const std::string& name) {
    Conversation start;
    report(name, "prompt");
    measure(prefill_, [&] {
      GenerationRequest request;
      request.prompt = prompt_;
      request.max_tokens = 0;
      request.conversation = &start;
      request.cancel = o_.cancel;
      generate(engine_, request);
    });
    for (size_t i = 0; i < o_.batches.size(); ++i) {
      report(name, fmt::format("{} sequence{}", o_.batches[i], o_.batches[i] == 1 ? "" : "s"));
      decode(start, o_.batches[i], decode_[i]);
    }
  }

  // gen steps with one token of each sequence: the last token is processed as well, because the
  // conversations are kept.
  void decode(const Conversation& start, int32_t batch, Samples& samples) {
    std::vector<Conversation> conversations(static_cast<size_t>(batch), start);
    std::vector<GenerationRequest> requests(conversations.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].max_tokens = o_.gen;
      requests[i].sampling = o_.sampling;
      requests[i].sampling.seed += i;  // texts of their own
      requests[i].ignore_eos = true;
      requests[i].conversation = &conversations[i];
      requests[i].cancel = o_.cancel;
    }
    // Copies of the state are made before the clock runs.
    for (Conversation& c : conversations) engine_.states().make_unique(c.state);
    engine_.backend().synchronize();
    measure(samples, [&] { generate(engine_, requests); });
  }

  template <typename Work>
  void measure(Samples& samples, Work&& work) {
    if (o_.profiler != nullptr) o_.profiler->reset();
    const EnergyMeter::Reading energy = meter_.read();
    const double begin = seconds_now();
    work();
    engine_.backend().synchronize();
    samples.seconds.push_back(seconds_now() - begin);
    if (o_.cancel != nullptr && o_.cancel->load()) bad_input("bench: interrupted");
    if (const auto joules = meter_.joules(energy, meter_.read())) samples.joules.push_back(*joules);
    if (o_.profiler != nullptr) samples.add_ops(o_.profiler->times(engine_.config()));
  }

  void report(const std::string& round, const std::string& what) const {
    if (o_.progress) o_.progress(fmt::format("{}: {}", round, what));
  }

  Engine& engine_;
  const ModelBenchOptions& o_;
  EnergyMeter meter_;
  std::vector<int32_t> prompt_;
  Samples prefill_;
  std::vector<Samples> decode_;
};

}  // namespace

SyntheticMemory synthetic_memory_for(const std::string& device) {
  const auto backend = make_backend(device, 1);
  float values[32 * 32] = {};
  const Tensor host(values, DType::kF32, {32, 32});
  Buffer owner;
  const Tensor imported = backend->import_weight(host, WeightUse::kMatmul, &owner);
  return imported.data == host.data ? SyntheticMemory::kOwn : SyntheticMemory::kShared;
}

EngineOptions bench_engine_options(EngineOptions options, const std::vector<int32_t>& batches) {
  int32_t most = 1;
  for (const int32_t batch : batches) most = std::max(most, batch);
  options.slots = most + 1;  // and one for the state after the prompt, from which all start
  options.logit_rows = most;
  return options;
}

ModelBenchResult bench_model(Engine& engine, const ModelBenchOptions& options) {
  return ModelBench(engine, options).run();
}

}  // namespace adder
