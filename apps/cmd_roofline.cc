// adder roofline: the measured ceilings of this machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "measure/ceilings.h"
#include "measure/machine.h"
#include "status_line.h"

namespace adder {
namespace {

using Json = nlohmann::ordered_json;

struct RooflineOptions {
  int threads = 0;
  int samples = 5;
  bool json = false;
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

void roofline(const RooflineOptions& o) {
  cli::StatusLine status;
  const auto measure = [&](int threads) {
    const auto probe = make_machine_probe(threads);
    return MachineCeilings{probe->threads(),
                           measure_ceilings(*probe, o.samples, 0.05,
                                            [&](const std::string& line) { status.show(line); })};
  };
  std::vector<MachineCeilings> all = {measure(o.threads)};
  if (all.front().threads > 1) all.push_back(measure(1));
  const std::string isa(make_machine_probe(1)->name());
  status.clear();
  if (o.json) {
    Json j = {{"cpu", cpu_name()}, {"isa", isa}, {"ceilings", Json::array()}};
    for (const MachineCeilings& m : all) j["ceilings"].push_back(ceilings_json(m));
    fmt::print("{}\n", j.dump());
    return;
  }
  fmt::print("{}, {}\n\n", cpu_name(), isa);
  for (const MachineCeilings& m : all) print_ceilings(m);
}

}  // namespace

void add_roofline(CLI::App& app) {
  auto o = std::make_shared<RooflineOptions>();
  CLI::App* c = app.add_subcommand("roofline", "Measured limits of this machine");
  c->footer(
      "Read bandwidth of memory and caches, and rates of multiply-adds and exp2, each with loops\n"
      "that do nothing else. A limit is the median of the fastest loop. The instruction set is "
      "the\n"
      "one that models run with (ADDER_FORCE_ISA). In JSON, rates are per second, without prefix.");
  c->add_option("--threads", o->threads, "Threads; 0: one per CPU available. One thread is added")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  c->add_option("--samples", o->samples, "Samples of each loop")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { roofline(*o); });
}

}  // namespace adder
