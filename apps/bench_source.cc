#include "bench_source.h"

#include "core/error.h"
#include "core/machine.h"
#include "engine/model_source.h"
#include "engine/synthetic.h"
#include "measure/model_bench.h"

namespace adder::cli {

void add_bench_source(CLI::App& command, BenchSource& s, const std::string& model_help) {
  auto* model = command.add_option("MODEL", s.model.model, model_help)->type_name("");
  command
      .add_option("--synthetic", s.synthetic,
                  "A model of this published shape with random weights, made in memory")
      ->check(CLI::IsMember(synthetic_names()))
      ->excludes(model);
  command.add_option("--type", s.type, "Weights of the synthetic model")
      ->check(CLI::IsMember(synthetic_type_names()))
      ->capture_default_str();
  add_engine_options(command, s.model);
}

BenchModel load_bench_model(const BenchSource& source, EngineOptions options) {
  const EngineOptions asked = engine_options(source.model);
  options.device = asked.device;
  options.threads = asked.threads;
  options.pin = asked.pin;
  options.block = asked.block;
  BenchModel out;
  double begin = seconds();
  if (source.synthetic.empty()) {
    out.name = source.model.model.empty() ? "demo" : source.model.model;
    out.engine = Engine::load(source.model.model, options);
    out.load_s = seconds() - begin;
    warn_of_tuning(*out.engine);
    pin_main_thread(source.model);
    return out;
  }
  out.name = source.synthetic;
  out.type = source.type;
  const SyntheticShape shape = synthetic_shape(source.synthetic);
  const DType type = parse_weight_type(source.type);
  const uint64_t needed = synthetic_bytes(shape, type), free = available_memory();
  if (free != 0 && needed > free) {
    bad_input("{} {}: expected {:.1f} GB of free memory, got {:.1f} GB", out.name, out.type,
              static_cast<double>(needed) * 1e-9, static_cast<double>(free) * 1e-9);
  }
  auto checkpoint = std::make_shared<Checkpoint>(
      make_synthetic(shape, type, synthetic_memory_for(options.device)));
  out.create_s = seconds() - begin;
  begin = seconds();
  out.engine = std::make_unique<Engine>(std::move(checkpoint), nullptr, options);
  out.load_s = seconds() - begin;
  warn_of_tuning(*out.engine);
  pin_main_thread(source.model);
  return out;
}

ModelConfig bench_config(const BenchSource& source) {
  if (source.synthetic.empty()) return derive_config(open_model(source.model.model));
  // The type does not matter to the sizes.
  return derive_config(
      make_synthetic(synthetic_shape(source.synthetic), DType::kBF16, SyntheticMemory::kShared));
}

void add_sampled_bench(CLI::App& command, SampledBench& bench, const std::string& model_help) {
  add_bench_source(command, bench.source, model_help);
  command.add_option("--repeat", bench.samples.repeat, "Samples of each operation")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--seconds", bench.samples.seconds, "Time of a sample, at least")
      ->check(cli::number_from(0.0, 10.0))
      ->capture_default_str();
  command.add_flag("--json", bench.json, "Print one JSON object");
}

std::string prepare(SampledBench& bench, StatusLine& status) {
  BenchSource& source = bench.source;
  if (source.model.model.empty() && source.synthetic.empty()) source.synthetic = "mamba-130m";
  bench.samples.device = source.model.device;
  bench.samples.threads = source.model.threads;
  bench.samples.progress = [&status](const std::string& line) { status.show(line); };
  bench.samples.cancel = &watch_interrupt();
  return source.synthetic.empty() ? source.model.model : source.synthetic;
}

}  // namespace adder::cli
