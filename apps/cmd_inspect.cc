// adder inspect: what a checkpoint is, without running it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/inspect.h"

namespace adder {
namespace {

struct InspectOptions {
  std::string model;
  bool tensors = false, json = false;
};

std::string megabytes(int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

void inspect(const InspectOptions& o) {
  const ModelReport r = inspect_model(o.model);
  const ModelConfig& c = r.config;
  nlohmann::ordered_json j;
  j["model"] = o.model.empty() ? "demo" : o.model;
  j["family"] = c.family;
  j["dialect"] = r.dialect;
  j["parameters"] = r.parameters;
  j["weight_bytes"] = r.bytes;
  j["n_layer"] = c.n_layer;
  j["d_model"] = c.d_model;
  j["d_inner"] = c.d_inner;
  j["d_state"] = c.d_state;
  j["d_conv"] = c.d_conv;
  if (c.mixer == MixerKind::kMamba1) {
    j["dt_rank"] = c.dt_rank;
  } else {
    j["n_heads"] = c.n_heads;
    j["headdim"] = c.headdim;
    j["n_groups"] = c.n_groups;
    j["gated_norm"] = c.gated_norm;
  }
  j["vocab_size"] = c.vocab_size;
  j["vocab_rows"] = c.vocab_rows;
  j["tied_head"] = c.tied_head;
  j["state_bytes"] = c.state_bytes();
  j["tokenizer"] = r.tokenizer.empty() ? nlohmann::json(nullptr) : nlohmann::json(r.tokenizer);
  j["trained_length"] =
      c.trained_length ? nlohmann::json(*c.trained_length) : nlohmann::json(nullptr);
  j["warnings"] = r.warnings;
  if (o.json) {
    for (const auto& [name, sum] : r.dtypes) {
      j["dtypes"][std::string(name)] = {
          {"tensors", sum.tensors}, {"parameters", sum.parameters}, {"bytes", sum.bytes}};
    }
    if (o.tensors) {
      for (const StoredTensor& t : r.tensors) {
        j["tensors"].push_back({{"name", t.name},
                                {"dtype", dtype_name(t.dtype)},
                                {"shape", t.shape},
                                {"file", t.file}});
      }
    }
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }

  fmt::print("{}: {} ({} dialect), {:.1f} M parameters, {}\n", j["model"].get<std::string>(),
             c.family, r.dialect, static_cast<double>(r.parameters) / 1e6, megabytes(r.bytes));
  fmt::print("layers      {} x d_model {}, d_inner {}, d_state {}, d_conv {}", c.n_layer, c.d_model,
             c.d_inner, c.d_state, c.d_conv);
  if (c.mixer == MixerKind::kMamba1) {
    fmt::print(", dt_rank {}\n", c.dt_rank);
  } else {
    fmt::print(", {} heads x {}, {} group{}{}\n", c.n_heads, c.headdim, c.n_groups,
               c.n_groups == 1 ? "" : "s", c.gated_norm ? "" : ", no gated norm");
  }
  fmt::print("vocabulary  {} ids in {} rows, head {}\n", c.vocab_size, c.vocab_rows,
             c.tied_head ? "tied" : "of its own");
  fmt::print("tokenizer   {}\n", r.tokenizer.empty()
                                     ? "none"
                                     : fmt::format("{}, {} ids", r.tokenizer, r.tokenizer_ids));
  fmt::print("state       {} bytes per sequence, whatever its length\n", c.state_bytes());
  fmt::print("trained on  {}\n", c.trained_length
                                     ? fmt::format("sequences of {} tokens", *c.trained_length)
                                     : "sequences of a length the files do not tell");
  for (const auto& [name, sum] : r.dtypes) {
    fmt::print("{:<11} {} tensors, {:.1f} M parameters, {}\n", name, sum.tensors,
               static_cast<double>(sum.parameters) / 1e6, megabytes(sum.bytes));
  }
  if (o.tensors) {
    for (const StoredTensor& t : r.tensors) {
      fmt::print("  {:<4} ({}) {}\n", dtype_name(t.dtype), fmt::join(t.shape, ", "), t.name);
    }
  }
  for (const std::string& warning : r.warnings) fmt::print("warning: {}\n", warning);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand("inspect", "Architecture, tensors, dtypes and sizes of a model");
  c->add_option("model", o->model, "Model; without it the demo model")->type_name("MODEL");
  c->add_flag("--tensors", o->tensors, "List every tensor");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { inspect(*o); });
}

}  // namespace adder
