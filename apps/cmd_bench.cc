// adder bench: the speed of a model, against the limits of the machine measured in the same run.
#include <fmt/format.h>

#include "bench_report.h"
#include "bench_source.h"
#include "commands.h"
#include "measure/model_bench.h"
#include "status_line.h"

namespace adder {
namespace {

struct BenchOptions {
  cli::BenchSource source;
  ModelBenchOptions bench;
  bool json = false, profile = false;
};

void bench(BenchOptions& o) {
  o.bench.sampling.validate();
  cli::StatusLine status;
  status.show(o.source.synthetic.empty() ? "loading" : "making " + o.source.synthetic);
  EngineOptions engine = bench_engine_options({}, o.bench.batches);
  if (o.profile) engine.wrap_backend = profile_into(&o.bench.profiler);
  const cli::BenchModel model = cli::load_bench_model(o.source, engine);
  o.bench.device = o.source.model.device;
  o.bench.threads = o.source.model.threads;
  o.bench.progress = [&](const std::string& line) { status.show(line); };
  o.bench.cancel = &cli::watch_interrupt();
  const ModelBenchResult result = bench_model(*model.engine, o.bench);
  status.clear();
  if (o.json) {
    fmt::print("{}", cli::bench_json(model, o.bench, result));
    return;
  }
  fmt::print("{}", cli::bench_table(model, result));
  if (!o.profile) return;
  fmt::print("\n{}", cli::profile_table(cli::prefill_title(result), result.prefill, result.rates));
  for (const PhaseResult& p : result.decode) {
    fmt::print("\n{}", cli::profile_table(cli::decode_title(p), p, result.rates));
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "Speed of a model, against the limits of the machine");
  c->footer(
      "Feeds a prompt of random ids and lets 1 or more sequences generate together, on the way "
      "that\n"
      "`adder run` takes, sampling included. Everything is measured in turn, --repeat times after "
      "a\n"
      "warm-up; the median and the extremes are printed. GB/s counts the weights once for each "
      "step;\n"
      "the limits it is compared with are measured between the repeats.");
  cli::add_bench_source(*c, o->source);
  c->add_option("--prompt", o->bench.prompt, "Tokens of the prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c->add_option("--gen", o->bench.gen, "Tokens that each sequence generates")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c->add_option("--batch", o->bench.batches, "Sequences that generate together, e.g. 1,4,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--repeat", o->bench.repeat, "Measurements of everything")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  cli::add_sampling_options(*c, o->bench.sampling);
  c->add_flag("--profile", o->profile,
              "Also the time of each operation, against the limit that binds it");
  c->add_flag("--json", o->json, "Print one JSON object");
  add_bench_kernels(*c);
  add_bench_scan(*c);
  c->callback([o, c] {
    if (c->get_subcommands().empty()) bench(*o);
  });
}

}  // namespace adder
