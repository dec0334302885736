// adder tune: measure which prefill block suits this machine and a model's shape, and keep it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_source.h"
#include "commands.h"
#include "core/error.h"
#include "engine/atomic_file.h"
#include "engine/tuning.h"
#include "measure/tuner.h"
#include "status_line.h"

namespace adder {
namespace {

struct TuneCommand {
  cli::BenchSource source;
  double seconds = 40;
  bool dry_run = false, json = false;
};

void tune(TuneCommand& o) {
  const std::string path = tuning_path();
  if (path.empty() && !o.dry_run) {
    bad_input("tune: expected XDG_CACHE_HOME or HOME to name a folder, got neither");
  }
  cli::StatusLine status;
  status.show("loading");
  o.source.model.block = kLargestTunedBlock;
  const cli::BenchModel model = cli::load_bench_model(o.source, {});
  TuneOptions options;
  options.budget_s = o.seconds;
  options.progress = [&](const std::string& line) { status.show(line); };
  options.cancel = &cli::watch_interrupt();
  const TuneResult result = tune_block(*model.engine, options);
  status.clear();
  const std::string key = tuning_key(model.engine->config(), model.engine->backend().description());
  if (!o.dry_run) store_tuning(path, key, {result.best});
  if (o.json) {
    nlohmann::ordered_json j = {{"key", key}, {"prompt", result.prompt}};
    for (const BlockTime& b : result.blocks) {
      const Spread s = spread_of(b.seconds);
      j["blocks"].push_back(
          {{"block", b.block}, {"median_s", s.median}, {"min_s", s.min}, {"max_s", s.max}});
    }
    j["best"] = result.best;
    j["gain"] = result.gain;
    if (!o.dry_run) j["file"] = path;
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print("{}\n\n{:>6} {:>10} {:>23}\n", key, "block", "tokens/s", "min to max");
  for (const BlockTime& b : result.blocks) {
    const Spread rate = rate_of(static_cast<double>(result.prompt), spread_of(b.seconds));
    fmt::print("{:>6} {:>10.1f} {:>23}{}\n", b.block, rate.median,
               fmt::format("{:.1f} to {:.1f}", rate.min, rate.max),
               b.block == result.best ? "  <- chosen" : "");
  }
  if (result.best == kDefaultBlock) {
    fmt::print("\nThe default stays: no other block is faster beyond the noise.\n");
  } else {
    fmt::print("\n{:.1f} % faster than the default of {}.\n", 100 * result.gain, kDefaultBlock);
  }
  if (!o.dry_run) fmt::print("Kept in {}\n", path);
}

}  // namespace

void add_tune(CLI::App& app) {
  auto o = std::make_shared<TuneCommand>();
  CLI::App* c = app.add_subcommand("tune", "Choose the prefill block for this machine and a model");
  c->footer(
      "Measures prompts with several blocks in turn and keeps the fastest, if it beats the "
      "default\n"
      "by more than the noise, for this processor, instruction set, number of threads and model\n"
      "shape. Commands use it unless --block is given. All blocks give the same results, bit for\n"
      "bit. --block is not used here.");
  cli::add_bench_source(*c, o->source);
  c->add_option("--seconds", o->seconds, "Time to spend")
      ->check(cli::number_from(0.0, 3600.0))
      ->capture_default_str();
  c->add_flag("--dry-run", o->dry_run, "Do not keep the result");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { tune(*o); });
}

}  // namespace adder
