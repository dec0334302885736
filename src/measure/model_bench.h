// Speed of a loaded model on the way that generation takes: Engine and generate(), sampling
// included.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"
#include "engine/synthetic.h"
#include "measure/ceilings.h"
#include "measure/energy.h"
#include "measure/model_cost.h"
#include "measure/profiler.h"
#include "measure/statistics.h"

namespace adder {

struct ModelBenchOptions {
  int64_t prompt = 512;             // tokens
  int64_t gen = 128;                // tokens of each sequence
  std::vector<int32_t> batches{1};  // sequences that decode together
  int repeat = 5;              // measurements of everything, in turn, after one that is dropped
  std::string device = "cpu";  // of the probes; the engine's
  int threads = 0;             // likewise
  SamplingOptions sampling;
  ProfilingBackend* profiler = nullptr;              // the engine's, when its backend is one
  std::function<void(const std::string&)> progress;  // may be empty
  const std::atomic<bool>* cancel = nullptr;
};

// A prompt, or steps in which all sequences of a batch advance by a token.
struct PhaseResult {
  int32_t batch = 1;
  int64_t tokens = 0;            // of each sequence
  Spread seconds;                // of all tokens
  std::optional<double> joules;  // of the package, median; nothing where it cannot be read
  std::vector<OpTimes> ops;      // with a profiler: sums over `repeat` measurements
  double profiled_seconds = 0;   // of these

  double all_tokens() const { return static_cast<double>(batch) * static_cast<double>(tokens); }
};

struct ModelBenchResult {
  PhaseResult prefill;
  std::vector<PhaseResult> decode;
  ModelCost cost;
  uint64_t peak_resident_bytes = 0;  // before the probes took memory of their own
  LimitRates rates;                  // sampled between the measurements
};

// How make_synthetic() should lay out a model for a device: kShared when its backend copies
// weights.
SyntheticMemory synthetic_memory_for(const std::string& device);

// Slots and rows of logits that the engine needs for these batches.
EngineOptions bench_engine_options(EngineOptions options, const std::vector<int32_t>& batches);

// Throws Error(kBadInput) when the cancel flag was set.
ModelBenchResult bench_model(Engine& engine, const ModelBenchOptions& options);

}  // namespace adder
