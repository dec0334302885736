// adder bench kernels: single operations at a model's shapes, each against its limit.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_source.h"
#include "commands.h"
#include "core/machine.h"
#include "engine/synthetic.h"
#include "measure/kernel_bench.h"
#include "status_line.h"

namespace adder {
namespace {

struct KernelsCommand : cli::SampledBench {
  std::vector<std::string> types = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"};
};

void bench_kernels_command(KernelsCommand& o) {
  cli::StatusLine status;
  const std::string name = cli::prepare(o, status);
  for (const std::string& type : o.types) o.samples.types.push_back(parse_weight_type(type));
  const ModelConfig config = cli::bench_config(o.source);
  const KernelBenchResult result = bench_kernels(config, o.samples);
  status.clear();
  const std::string& device = result.device;
  if (o.json) {
    nlohmann::ordered_json j = {{"model", name}, {"cpu", cpu_name()}, {"device", device}};
    for (const Limit limit : kLimits)
      j["limits"][std::string(limit_name(limit))] = result.rates[limit];
    for (const KernelResult& k : result.kernels) {
      const Bound bound = bound_of(k.cost, result.rates);
      j["kernels"].push_back({{"name", k.name},
                              {"detail", k.detail},
                              {"rows", k.rows},
                              {"median_s", k.seconds.median},
                              {"min_s", k.seconds.min},
                              {"max_s", k.seconds.max},
                              {"memory_bytes", k.cost.memory_bytes},
                              {"flops", k.cost.flops},
                              {"int8_ops", k.cost.int8_ops},
                              {"limit", limit_name(bound.limit)},
                              {"limit_s", bound.seconds},
                              {"of_limit", bound.seconds / k.seconds.median}});
    }
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print("{}; {}; {}\n", name, cpu_name(), device);
  fmt::print("this run: memory read {:.1f} GB/s, float32 {:.1f} GFLOP/s, int8 {:.1f} GOP/s\n\n",
             result.rates[Limit::kMemoryRead] * 1e-9, result.rates[Limit::kFma] * 1e-9,
             result.rates[Limit::kInt8] * 1e-9);
  fmt::print("{:<15} {:<24} {:>5} {:>11} {:>22} {:>8} {:>8} {:>9}  {}\n", "", "", "rows", "us",
             "min to max", "GB/s", "GOP/s", "of limit", "bound by");
  for (const KernelResult& k : result.kernels) {
    const Bound bound = bound_of(k.cost, result.rates);
    fmt::print("{:<15} {:<24} {:>5} {:>11.2f} {:>22} {:>8.1f} {:>8.1f} {:>8.0f}%  {}\n", k.name,
               k.detail, k.rows, k.seconds.median * 1e6,
               fmt::format("{:.2f} to {:.2f}", k.seconds.min * 1e6, k.seconds.max * 1e6),
               k.cost.memory_bytes / k.seconds.median * 1e-9,
               (k.cost.flops + k.cost.int8_ops) / k.seconds.median * 1e-9,
               100 * bound.seconds / k.seconds.median, limit_name(bound.limit));
  }
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto o = std::make_shared<KernelsCommand>();
  o->samples.rows = {1, 2, 4, 8, 16, 64, 512};
  CLI::App* c = bench.add_subcommand(
      "kernels", "Single operations at a model's shapes, each against its limit");
  c->footer(
      "Products for every type and number of rows, with weights that come from memory; "
      "convolution,\n"
      "scan and norms; sampling. Up to 16 rows are as many sequences that decode, more are one\n"
      "prompt. GB/s counts weights and state, GOP/s float32 and int8 operations.");
  cli::add_sampled_bench(*c, *o, "Model; without it the shapes of mamba-130m");
  c->add_option("--types", o->types, "Types of weights")
      ->delimiter(',')
      ->check(CLI::IsMember(synthetic_type_names()))
      ->capture_default_str();
  c->add_option("--rows", o->samples.rows, "Tokens that one call works on")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->callback([o] { bench_kernels_command(*o); });
}

}  // namespace adder
