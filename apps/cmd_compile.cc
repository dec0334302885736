// adder compile: what a device has to compile for a model, before anybody waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "engine/precompile.h"
#include "status_line.h"

namespace adder {
namespace {

struct CompileOptions {
  cli::ModelOptions model;
  PrecompileOptions precompile;
  int32_t slots = 0;
  bool json = false;
};

std::string title(const Precompiled& p) {
  switch (p.part) {
    case PrecompiledPart::kPrompt:
      return p.batch == 1 ? fmt::format("prompt of {}", p.length)
                          : fmt::format("{} prompts of {}", p.batch, p.length);
    case PrecompiledPart::kStep:
      return fmt::format("step of {}", p.batch);
    case PrecompiledPart::kLoop:
      return fmt::format("decode loop of {}", p.batch);
  }
  return {};
}

void print_table(const Engine& engine, const std::vector<Precompiled>& parts) {
  fmt::print("{}: blocks of {} tokens\n\n", engine.backend().description(), engine.block());
  fmt::print("{:20} {:>9} {:>11} {:>10}\n", "", "compiled", "from cache", "seconds");
  for (const Precompiled& p : parts)
    fmt::print("{:20} {:>9} {:>11} {:>10.2f}\n", title(p), p.compiled, p.from_cache, p.seconds);
  int64_t needed = 0, on_disk = 0;
  for (const Precompiled& p : parts) {
    needed += p.compiled + p.from_cache;
    on_disk += p.on_disk;
  }
  if (on_disk == needed) {
    fmt::print("\nAll of them are kept on the disk.\n");
  } else if (on_disk > 0) {
    fmt::print("\n{} of {} are kept on the disk.\n", on_disk, needed);
  } else {
    fmt::print("\nNothing is kept on the disk: the device cannot, or the cache is off or full.\n");
  }
}

void print_json(const CompileOptions& o, Engine& engine, const std::vector<Precompiled>& parts) {
  nlohmann::ordered_json j = {{"model", o.model.model.empty() ? "demo" : o.model.model},
                              {"device", engine.backend().description()},
                              {"block", engine.block()},
                              {"slots", engine.states().slots()},
                              {"parts", nlohmann::ordered_json::array()}};
  for (const Precompiled& p : parts) {
    nlohmann::ordered_json part = {{"part", precompiled_part_name(p.part)}};
    if (p.part == PrecompiledPart::kPrompt) part["length"] = p.length;
    part.update({{"batch", p.batch},
                 {"compiled", p.compiled},
                 {"from_cache", p.from_cache},
                 {"on_disk", p.on_disk},
                 {"seconds", p.seconds}});
    j["parts"].push_back(std::move(part));
  }
  fmt::print("{}\n", j.dump());
}

void compile(CompileOptions& o) {
  check_precompiles(o.model.device);
  o.precompile.sampling.validate();
  cli::StatusLine status;
  const auto checkpoint = std::make_shared<const Checkpoint>(open_model(o.model.model));
  EngineOptions options = cli::engine_options(o.model);
  const auto& batches = o.precompile.batches;
  options.slots = o.slots > 0 ? o.slots : *std::max_element(batches.begin(), batches.end());
  Engine engine(checkpoint, find_tokenizer(*checkpoint), options);
  cli::warn_of_tuning(engine);
  o.precompile.progress = [&](const std::string& what) { status.show(what); };
  o.precompile.cancel = &cli::watch_interrupt();
  const auto parts = precompile(engine, o.precompile);
  status.clear();
  if (o.json) {
    print_json(o, engine, parts);
  } else {
    print_table(engine, parts);
  }
}

}  // namespace

void add_compile(CLI::App& app) {
  auto o = std::make_shared<CompileOptions>();
  o->model.device = "xla";
  CLI::App* c = app.add_subcommand("compile", "Compile what an XLA device needs for a model");
  c->footer(
      "Feeds a prompt of each length, takes a step, and runs the decode loop, as `adder run` "
      "would;\n"
      "with --batch also as many prompts at once, whose blocks run beside answers to the others.\n"
      "The compiled programs go into $XDG_CACHE_HOME/adder/xla or ~/.cache/adder/xla, from which\n"
      "the next process takes them instead of compiling. A prompt's blocks are one program:\n"
      "lengths of as many blocks whose last ones are padded to the same power of two share it.\n"
      "Programs also depend on --block, --batch, --slots, and on whether tokens are drawn (--temp\n"
      "above 0) and repetition is penalised.");
  c->add_option("model", o->model.model, "Model; without it the demo model")->type_name("MODEL");
  c->add_option("--lengths", o->precompile.lengths, "Tokens of prompts, e.g. 128,512,2048")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24))
      ->required();
  c->add_option("--batch", o->precompile.batches, "Sequences that run together, e.g. 1,4,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--slots", o->slots,
                "Sequences that the engine holds, as that of `adder serve`; 0: the largest batch")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  cli::add_engine_options(*c, o->model);
  cli::add_sampling_options(*c, o->precompile.sampling);
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { compile(*o); });
}

}  // namespace adder
