// Single operations of a backend at the shapes of a model, each held against its limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "measure/ceilings.h"
#include "measure/op_cost.h"
#include "measure/statistics.h"
#include "model/config.h"

namespace adder {

struct KernelBenchOptions {
  std::string device = "cpu";
  int threads = 0;
  std::vector<DType> types;   // of weights
  std::vector<int64_t> rows;  // tokens that one call works on
  int repeat = 5;             // samples of each kernel, after one that is dropped
  double seconds = 0.02;      // of a sample, at least
  std::function<void(const std::string&)> progress;  // may be empty
  const std::atomic<bool>* cancel = nullptr;
};

struct KernelResult {
  std::string name;    // "in_proj", "selective_scan", ...
  std::string detail;  // "3072 x 768 Q8_0"
  DType activations = DType::kF32;
  int64_t rows = 0;  // tokens of a call
  Spread seconds;    // of a call
  OpCost cost;       // of a call
};

struct KernelBenchResult {
  std::vector<KernelResult> kernels;
  std::string device;  // the backend's description
  LimitRates rates;    // sampled between the kernels
};

// The matrix products of `config` for each type and number of rows, with weights that come from
// memory and not from a cache as in a model; the convolution and the scan for each number of rows,
// one sequence when there are more than 16 of them and as many sequences as rows when not; norms;
// and sampling. Throws Error(kBadInput) when the cancel flag was set.
KernelBenchResult bench_kernels(const ModelConfig& config, const KernelBenchOptions& options);

// The Mamba-1 scan from the textbook loop to the backend's own (make_scan_ladder()), each over
// `sequences` of `tokens` at the sizes of `config`, on one thread of a CPU; a kernel's detail says
// what the rung does. Throws Error(kBadInput) for a Mamba-2 model and when the cancel flag was set.
KernelBenchResult bench_scan_ladder(const ModelConfig& config, int64_t sequences, int64_t tokens,
                                    const KernelBenchOptions& options);

}  // namespace adder
