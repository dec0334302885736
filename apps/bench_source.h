// The model of `bench`, `roofline` and `tune`: one from a file, or a synthetic one by name.
#pragma once

#include <memory>
#include <string>

#include "cli_common.h"
#include "measure/kernel_bench.h"
#include "status_line.h"

namespace adder::cli {

struct BenchSource {
  ModelOptions model;
  std::string synthetic;      // name of a shape; empty: `model`
  std::string type = "bf16";  // of a synthetic model's big matrices
};

struct BenchModel {
  std::unique_ptr<Engine> engine;
  std::string name;
  std::string type;                 // empty for a model from a file
  double create_s = 0, load_s = 0;  // making a synthetic model, and loading either kind
};

// MODEL, --synthetic, --type, --device, --threads, --block.
void add_bench_source(CLI::App& command, BenchSource& source,
                      const std::string& model_help = "Model; without it the demo model");

// engine: slots, rows of logits and so on; device, threads and block come from `source`.
// Throws Error(kBadInput) when a synthetic model is larger than the memory that is free.
BenchModel load_bench_model(const BenchSource& source, EngineOptions engine);

// The sizes of the model alone.
ModelConfig bench_config(const BenchSource& source);

// What the commands that time single operations have in common.
struct SampledBench {
  BenchSource source;
  KernelBenchOptions samples;
  bool json = false;
};
// The options of BenchSource, --repeat, --seconds, --json.
void add_sampled_bench(CLI::App& command, SampledBench& bench, const std::string& model_help);
// Once the options are known: the model's name, that of mamba-130m without one. Progress goes to
// `status`, which must outlive the measurement, and Ctrl-C ends it.
std::string prepare(SampledBench& bench, StatusLine& status);

}  // namespace adder::cli
