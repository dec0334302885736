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
#include "measure/statistics.h"

namespace adder {

struct ModelBenchOptions {
  int64_t prompt = 512;             // tokens
  int64_t gen = 128;                // tokens of each sequence
  std::vector<int32_t> batches{1};  // sequences that decode together
  int repeat = 5;   // measurements of everything, in turn, after one that is dropped
  int threads = 0;  // of the probes; the engine's number
  SamplingOptions sampling;
  std::function<void(const std::string&)> progress;  // may be empty
  const std::atomic<bool>* cancel = nullptr;
};

struct PrefillResult {
  int64_t tokens = 0;
  Spread seconds;
  std::optional<double> joules;  // of the package, one prompt; median
};

struct DecodeResult {
  int32_t batch = 1;
  int64_t steps = 0;
  Spread seconds;                // of all steps
  std::optional<double> joules;  // of all steps; median
};

struct ModelBenchResult {
  PrefillResult prefill;
  std::vector<DecodeResult> decode;
  ModelCost cost;
  uint64_t peak_resident_bytes = 0;  // before the probes took memory of their own
  // Medians of samples taken between the measurements.
  double read_rate = 0, fma_rate = 0, int8_rate = 0;  // bytes and operations per second
};

// How make_synthetic() should lay out a model for a device: kShared when its backend copies
// weights.
SyntheticMemory synthetic_memory_for(const std::string& device);

// Slots and rows of logits that the engine needs for these batches.
EngineOptions bench_engine_options(EngineOptions options, const std::vector<int32_t>& batches);

// Throws Error(kBadInput) when the cancel flag was set.
ModelBenchResult bench_model(Engine& engine, const ModelBenchOptions& options);

}  // namespace adder
