// adder bench scan: the Mamba-1 scan in steps, from the textbook loop to the engine's own.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_source.h"
#include "commands.h"
#include "core/machine.h"
#include "measure/kernel_bench.h"
#include "status_line.h"

namespace adder {
namespace {

struct ScanCommand : cli::SampledBench {
  int64_t tokens = 512, sequences = 1;
};

// Bytes that a scan cannot avoid moving: its operands and results, once.
double useful_bytes(const OpCost& cost) {
  return cost.memory_bytes + cost.cache_bytes;
}

std::string title(const KernelResult& k) {
  return k.activations == DType::kF32 ? k.name
                                      : fmt::format("{} {}", k.name, dtype_name(k.activations));
}

void bench_scan(ScanCommand& o) {
  cli::StatusLine status;
  const std::string name = cli::prepare(o, status);
  const ModelConfig config = cli::bench_config(o.source);
  const KernelBenchResult result = bench_scan_ladder(config, o.sequences, o.tokens, o.samples);
  status.clear();
  const double naive_s = result.kernels.front().seconds.median;
  if (o.json) {
    nlohmann::ordered_json j = {{"model", name},
                                {"cpu", cpu_name()},
                                {"device", result.device},
                                {"tokens", o.tokens},
                                {"batch", o.sequences},
                                {"d_inner", config.d_inner},
                                {"d_state", config.d_state}};
    for (const Limit limit : kLimits)
      j["limits"][std::string(limit_name(limit))] = result.rates[limit];
    for (const KernelResult& k : result.kernels) {
      const Bound bound = bound_of(k.cost, result.rates);
      j["rungs"].push_back({{"name", k.name},
                            {"detail", k.detail},
                            {"activations", dtype_name(k.activations)},
                            {"median_s", k.seconds.median},
                            {"min_s", k.seconds.min},
                            {"max_s", k.seconds.max},
                            {"useful_bytes_per_s", useful_bytes(k.cost) / k.seconds.median},
                            {"limit", limit_name(bound.limit)},
                            {"of_limit", bound.seconds / k.seconds.median},
                            {"speed_up", naive_s / k.seconds.median}});
    }
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print("{}: selective_scan of {} x {} tokens, d_inner {}, d_state {}\n{}; {}\n\n", name,
             o.sequences, o.tokens, config.d_inner, config.d_state, cpu_name(), result.device);
  fmt::print("{:<19} {:>9} {:>19} {:>10} {:>9}  {:<11} {:>9}\n", "", "ms", "min to max",
             "useful GB/s", "of limit", "bound by", "speed-up");
  for (const KernelResult& k : result.kernels) {
    const Bound bound = bound_of(k.cost, result.rates);
    fmt::print("{:<19} {:>9.3f} {:>19} {:>11.2f} {:>8.1f}%  {:<11} {:>8.1f}x\n", title(k),
               k.seconds.median * 1e3,
               fmt::format("{:.3f} to {:.3f}", k.seconds.min * 1e3, k.seconds.max * 1e3),
               useful_bytes(k.cost) / k.seconds.median * 1e-9,
               100 * bound.seconds / k.seconds.median, limit_name(bound.limit),
               naive_s / k.seconds.median);
  }
  fmt::print("\n");
  for (const KernelResult& k : result.kernels) fmt::print("{:<19} {}\n", title(k), k.detail);
}

}  // namespace

void add_bench_scan(CLI::App& bench) {
  auto o = std::make_shared<ScanCommand>();
  CLI::App* c =
      bench.add_subcommand("scan", "The Mamba-1 scan, from the textbook loop to the engine's own");
  c->footer(
      "Every rung computes the same whole operation: softplus, decay, state, output and gate.\n"
      "Useful bytes are the operands and results, counted once; the limit is the slowest of the\n"
      "resources that the formula needs. On a CPU a rung runs on one thread, always.");
  cli::add_sampled_bench(*c, *o, "Mamba-1 model; without it the shape of mamba-130m");
  c->add_option("--tokens", o->tokens, "Length of a sequence")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--batch", o->sequences, "Sequences")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  c->callback([o] { bench_scan(*o); });
}

}  // namespace adder
