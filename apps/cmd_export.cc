// adder export: a model as programs for other runtimes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "engine/model_source.h"
#include "engine/stablehlo_export.h"
#include "status_line.h"

namespace adder {
namespace {

struct ExportOptions {
  std::string model, target;
  StablehloExportOptions stablehlo;
  bool json = false;
};

void export_model(ExportOptions& o) {
  const auto checkpoint = std::make_shared<const Checkpoint>(open_model(o.model));
  cli::StatusLine status;
  o.stablehlo.progress = [&](const std::string& what) { status.show(what); };
  const auto files = export_stablehlo(checkpoint, o.target, o.stablehlo);
  status.clear();
  if (o.json) {
    nlohmann::ordered_json j = {{"folder", o.target}, {"files", nlohmann::ordered_json::array()}};
    for (const ExportedFile& f : files)
      j["files"].push_back({{"name", f.name}, {"bytes", f.bytes}});
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (const ExportedFile& f : files) fmt::print("{:24} {:>14} bytes\n", f.name, f.bytes);
}

}  // namespace

void add_export(CLI::App& app) {
  auto o = std::make_shared<ExportOptions>();
  CLI::App* c = app.add_subcommand("export", "Write a model as programs for other runtimes");
  c->footer(
      "Writes programs of StableHLO for prompts (prefill_N.mlir), a step and a greedy decode "
      "loop,\n"
      "the weights, a manifest.json that says what every argument is, and run.py, which runs them\n"
      "with jaxlib. Nothing is run, and no plugin is needed. Quantized models are refused.");
  c->add_option("model", o->model, "Model; without it the demo model")->type_name("MODEL");
  c->add_option("--stablehlo", o->target, "The folder to make, new or empty")
      ->type_name("DIR")
      ->required();
  c->add_option("--blocks", o->stablehlo.blocks,
                "Tokens that a prefill program takes; rounded up to 4, 16, 32, 64, ...")
      ->delimiter(',')
      ->check(CLI::Range(2, 65536))
      ->capture_default_str();
  c->add_option("--batch", o->stablehlo.batch, "Sequences of the states, the step and the loop")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { export_model(*o); });
}

}  // namespace adder
