// adder roofline: the measured limits of this machine, and where the operations of a model stand
// below them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_report.h"
#include "bench_source.h"
#include "commands.h"
#include "core/machine.h"
#include "measure/ceilings.h"
#include "status_line.h"

namespace adder {
namespace {

using Json = nlohmann::ordered_json;

struct RooflineOptions {
  cli::BenchSource source;
  int samples = 5;
  bool limits_only = false, json = false;
};

struct MachineCeilings {
  int threads;
  std::vector<Ceiling> ceilings;
};

void print_ceilings(const MachineCeilings& m) {
  fmt::print("{:<21} {:>7} {:>9} {:<8} {:>18}\n", "", "threads", "median", "", "min to max");
  for (const Ceiling& c : m.ceilings) {
    for (const LoopRate& loop : c.loops) {
      const bool best = c.loops.size() > 1 && &loop == &c.best();
      fmt::print("{:<21} {:>7} {:>9.1f} {:<8} {:>18}  {}{}\n", limit_name(c.limit), m.threads,
                 loop.rate.median * 1e-9, limit_unit(c.limit),
                 fmt::format("{:.1f} to {:.1f}", loop.rate.min * 1e-9, loop.rate.max * 1e-9),
                 loop.loop, best ? "  <- ceiling" : "");
    }
  }
  fmt::print("\n");
}

Json ceilings_json(const MachineCeilings& m) {
  Json list = Json::array();
  for (const Ceiling& c : m.ceilings) {
    Json loops = Json::array();
    for (const LoopRate& loop : c.loops) {
      loops.push_back({{"loop", loop.loop},
                       {"median", loop.rate.median},
                       {"min", loop.rate.min},
                       {"max", loop.rate.max}});
    }
    list.push_back({{"limit", limit_name(c.limit)},
                    {"unit", limit_unit(c.limit)},
                    {"ceiling", c.best().rate.median},
                    {"loops", std::move(loops)}});
  }
  return {{"threads", m.threads}, {"limits", std::move(list)}};
}

void roofline(RooflineOptions& o) {
  cli::StatusLine status;
  const auto progress = [&](const std::string& line) { status.show(line); };
  const auto measure = [&](int threads) {
    const auto probe = make_machine_probe(o.source.model.device, threads);
    return MachineCeilings{probe->threads(), measure_ceilings(*probe, o.samples, 0.05, progress)};
  };
  std::vector<MachineCeilings> all = {measure(o.source.model.threads)};
  if (all.front().threads > 1 && o.source.model.device == "cpu") all.push_back(measure(1));
  const std::string isa(make_machine_probe(o.source.model.device, 1)->name());

  cli::BenchModel model;
  ModelBenchOptions bench;
  ModelBenchResult result;
  if (!o.limits_only) {
    if (o.source.model.model.empty() && o.source.synthetic.empty()) {
      o.source.synthetic = "mamba-130m";
    }
    status.show("loading");
    EngineOptions engine = bench_engine_options({}, bench.batches);
    engine.wrap_backend = profile_into(&bench.profiler);
    model = cli::load_bench_model(o.source, engine);
    bench.prompt = model.engine->block();
    bench.gen = 16;
    bench.repeat = o.samples;
    bench.device = o.source.model.device;
    bench.threads = o.source.model.threads;
    bench.progress = progress;
    bench.cancel = &cli::watch_interrupt();
    result = bench_model(*model.engine, bench);
  }
  status.clear();
  if (o.json) {
    Json j = {{"cpu", cpu_name()}, {"isa", isa}, {"ceilings", Json::array()}};
    for (const MachineCeilings& m : all) j["ceilings"].push_back(ceilings_json(m));
    if (model.engine) j["bench"] = Json::parse(cli::bench_json(model, bench, result));
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print("{}, {}\n\n", cpu_name(), isa);
  for (const MachineCeilings& m : all) print_ceilings(m);
  if (!model.engine) return;
  fmt::print("{}{}{}, {}\n\n", model.name, model.type.empty() ? "" : " ", model.type,
             model.engine->backend().description());
  fmt::print("{}\n", cli::profile_table(cli::prefill_title(result), result.prefill, result.rates));
  for (const PhaseResult& p : result.decode) {
    fmt::print("{}", cli::profile_table(cli::decode_title(p), p, result.rates));
  }
}

}  // namespace

void add_roofline(CLI::App& app) {
  auto o = std::make_shared<RooflineOptions>();
  CLI::App* c = app.add_subcommand(
      "roofline", "Measured limits of this machine, and how close a model's operations come");
  c->footer(
      "Limits: read bandwidth of memory and caches, and rates of multiply-adds and exp2, each "
      "with\n"
      "loops that do nothing else; a limit is the median of the fastest loop. The instruction set "
      "is\n"
      "the one that models run with (ADDER_FORCE_ISA).\n"
      "Operations: their time for one token in a prompt block and in decoding, and the least time\n"
      "that the resource which binds them allows. Without a model mamba-130m is used. In JSON,\n"
      "rates are per second, without prefix.");
  cli::add_bench_source(*c, o->source, "Model; without it the synthetic mamba-130m");
  c->add_flag("--limits-only", o->limits_only, "No model");
  c->add_option("--samples", o->samples, "Samples of each loop, and runs of the model")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { roofline(*o); });
}

}  // namespace adder
