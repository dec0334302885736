#include "engine/stablehlo_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "backends/registry.h"
#include "core/error.h"
#include "engine/atomic_file.h"
#include "engine/engine.h"
#include "engine/model_folder.h"
#include "engine/model_source.h"
#include "io/safetensors_writer.h"

namespace adder {
namespace {

using Json = nlohmann::ordered_json;

struct NamedWeight {
  std::string name;
  Tensor tensor;
};

// Every weight once, although the head may be the embedding.
std::vector<NamedWeight> named_weights(const Weights& w) {
  std::vector<NamedWeight> all;
  const auto add = [&](std::string name, const Tensor& t) {
    const auto same = [&](const NamedWeight& n) { return n.tensor.data == t.data; };
    if (t && std::ranges::none_of(all, same)) all.push_back({std::move(name), t});
  };
  add("embedding", w.embedding);
  for (size_t i = 0; i < w.layers.size(); ++i) {
    const LayerWeights& l = w.layers[i];
    const std::pair<const char*, const Tensor*> fields[] = {{"norm", &l.norm},
                                                            {"in_proj", &l.in_proj},
                                                            {"in_proj_bias", &l.in_proj_bias},
                                                            {"in_proj_dt", &l.in_proj_dt},
                                                            {"in_proj_dt_bias", &l.in_proj_dt_bias},
                                                            {"conv_weight", &l.conv_weight},
                                                            {"conv_bias", &l.conv_bias},
                                                            {"x_proj", &l.x_proj},
                                                            {"dt_proj", &l.dt_proj},
                                                            {"dt_bias", &l.dt_bias},
                                                            {"A_log2e", &l.A_log2e},
                                                            {"D", &l.D},
                                                            {"gated_norm", &l.gated_norm},
                                                            {"out_proj", &l.out_proj},
                                                            {"out_proj_bias", &l.out_proj_bias}};
    for (const auto& [field, tensor] : fields) add(fmt::format("layers.{}.{}", i, field), *tensor);
  }
  add("norm_f", w.norm_f);
  add("lm_head", w.lm_head);
  return all;
}

class StablehloExport {
 public:
  StablehloExport(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& target,
                  const StablehloExportOptions& options)
      : o_(options), folder_(target), source_(checkpoint->path()) {
    if (o_.progress) o_.progress("loading");
    EngineOptions engine;
    engine.device = "xla:interpreter";
    engine.slots = o_.batch;
    engine.block = std::max<int64_t>(1, std::ranges::max(o_.blocks));
    engine_ = std::make_unique<Engine>(checkpoint, find_tokenizer(*checkpoint), engine);
    weights_ = named_weights(engine_->model().weights());
    for (const NamedWeight& w : weights_) names_[address(w.tensor)] = {"weight", w.name};
    for (int64_t i = 0; i < engine_->config().n_layer; ++i) {
      add_state(fmt::format("layers.{}.conv_state", i), engine_->states().conv_state(i));
      add_state(fmt::format("layers.{}.ssm_state", i), engine_->states().ssm_state(i));
    }
  }

  std::vector<ExportedFile> run() {
    for (int32_t i = 0; i < o_.batch; ++i) states_.push_back(engine_->states().acquire());
    for (const int64_t block : o_.blocks) prefill(block);
    step();
    generate();
    write_weights();
    write_manifest();
    write("run.py", kStablehloRunScript);
    folder_.commit();
    return std::move(files_);
  }

 private:
  static uintptr_t address(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.bytes()); }

  void add_state(const std::string& name, const Tensor& t) {
    names_[address(t)] = {"state", name};
    state_list_.push_back(name);
  }

  void report(const std::string& name) const {
    if (o_.progress) o_.progress(name);
  }

  void write(const std::string& name, std::string_view text) {
    AtomicFile file(folder_.path() + "/" + name);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    files_.push_back({name, text.size()});
  }

  Json to_json(const ProgramValue& v, bool argument) const {
    Json j;
    if (v.memory == 0) {
      j["kind"] = argument ? "input" : "output";
      j["name"] = v.name;
    } else {
      const auto found = names_.find(v.memory);
      if (found == names_.end())
        fail(ErrorCode::kInternal, "export: a program has a value that is no weight and no state");
      j["kind"] = found->second.kind;
      j["name"] = found->second.name;
    }
    j["dtype"] = v.dtype;
    j["shape"] = v.shape;
    if (v.donated >= 0) j["donated_to_result"] = v.donated;
    return j;
  }

  void add_program(const std::string& name, const ExportedProgram& program, Json about) {
    about["file"] = name + ".mlir";
    for (const ProgramValue& v : program.arguments) {
      about["arguments"].push_back(to_json(v, true));
      if (v.memory != 0 && names_.at(v.memory).kind == "state")
        shapes_[names_.at(v.memory).name] = {v.dtype, v.shape};
    }
    for (const ProgramValue& v : program.results) about["results"].push_back(to_json(v, false));
    write(name + ".mlir", program.text);
    programs_.push_back(std::move(about));
  }

  void prefill(int64_t block) {
    report(fmt::format("prefill of {}", block));
    const std::vector<int32_t> tokens(static_cast<size_t>(block));
    const int32_t last = static_cast<int32_t>(block) - 1;
    const ExportedProgram program = export_step(engine_->backend(), [&] {
      const Piece piece{&states_[0], tokens};
      return engine_->logits(engine_->step({&piece, 1}), {&last, 1});
    });
    const auto ids = std::ranges::find(program.arguments, "ids", &ProgramValue::name);
    const int64_t rows = ids->shape.at(0);
    const std::string name = fmt::format("prefill_{}", rows);
    const std::string file = name + ".mlir";
    if (std::ranges::any_of(programs_, [&](const Json& p) { return p["file"] == file; })) return;
    add_program(name, program, {{"program", "prefill"}, {"tokens", rows}});
  }

  void step() {
    report("step");
    const auto n = static_cast<size_t>(o_.batch);
    const std::vector<int32_t> tokens(n);
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < n; ++i) pieces.push_back({&states_[i], std::span(tokens).subspan(i, 1)});
    add_program("step",
                export_step(engine_->backend(),
                            [&] { return engine_->logits(engine_->step(pieces), rows); }),
                {{"program", "step"}, {"batch", o_.batch}});
  }

  void generate() {
    report("generate");
    const auto stops = std::max<int64_t>(std::ssize(engine_->eos_ids()), 1);
    const ExportedProgram program = export_decode_loop(
        engine_->backend(), o_.batch, engine_->vocab_limit(), stops, true, engine_->decode_step());
    add_program("generate", program, {{"program", "generate"}, {"batch", o_.batch}});
  }

  void write_weights() {
    report("weights");
    // Without gaps: wider types first keep all aligned.
    std::ranges::stable_sort(weights_, [](const NamedWeight& a, const NamedWeight& b) {
      return dtype_size(a.tensor.dtype) > dtype_size(b.tensor.dtype);
    });
    AtomicFile file(folder_.path() + "/weights.safetensors");
    uint64_t written = 0;
    SafetensorsWriter writer([&](std::span<const std::byte> bytes) {
      file.write(bytes);
      written += bytes.size();
    });
    for (const NamedWeight& w : weights_) {
      const auto first = w.tensor.shape.begin();
      writer.declare(w.name, w.tensor.dtype, std::vector<int64_t>(first, first + w.tensor.rank));
    }
    std::vector<std::byte> bytes;
    for (const NamedWeight& w : weights_) {
      bytes.resize(static_cast<size_t>(w.tensor.size()) * dtype_size(w.tensor.dtype));
      engine_->backend().read(w.tensor, bytes);
      writer.write(bytes);
    }
    writer.finish();
    file.commit();
    files_.push_back({"weights.safetensors", written});
  }

  void write_manifest() {
    Json states = Json::array();
    for (const std::string& name : state_list_) {
      const auto& [dtype, shape] = shapes_.at(name);
      states.push_back({{"name", name}, {"dtype", dtype}, {"shape", shape}});
    }
    const Json inputs = {
        {"ids", "token ids, filled up with 0"},
        {"valid", "prefill: how many of the ids count"},
        {"slots", "which row of the states each sequence has; -1 leaves them as they are"},
        {"rows", "the positions whose logits are wanted, filled up with 0; generate: 0, 1, 2, ..."},
        {"steps", "generate: take at most so many steps, up to 16"},
        {"token", "generate: the id that the next step feeds"},
        {"slot", "generate: as slots; -1 once a row has ended"},
        {"remaining", "generate: ids that a row may still choose"},
        {"index", "generate: counts the ids; only drawing would look at it"},
        {"stop", "generate: ids that end a row, filled up with -1"}};
    const Json outputs = {
        {"logits", "one row for each of `rows`; columns from vocab_size on are padding"},
        {"chosen", "generate: (steps, rows) ids; -1: the row had ended, -2: no finite logit"}};
    Json manifest = {
        {"format", "adder-stablehlo"},
        {"version", 1},
        {"model", source_},
        {"slots", o_.batch},
        {"vocab_size", engine_->vocab_limit()},
        {"eos_ids", std::vector<int32_t>(engine_->eos_ids().begin(), engine_->eos_ids().end())},
        {"weights", "weights.safetensors"},
        {"states", std::move(states)},
        {"inputs", inputs},
        {"outputs", outputs},
        {"programs", programs_}};
    write("manifest.json", manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  struct Known {
    std::string kind, name;
  };

  const StablehloExportOptions& o_;
  TemporaryFolder folder_;
  std::string source_;
  std::unique_ptr<Engine> engine_;
  std::vector<StateHandle> states_;  // of the engine
  std::vector<NamedWeight> weights_;
  std::map<uintptr_t, Known> names_;
  std::vector<std::string> state_list_;
  std::map<std::string, std::pair<std::string, std::vector<int64_t>>> shapes_;  // of the states
  std::vector<Json> programs_;
  std::vector<ExportedFile> files_;
};

}  // namespace

std::vector<ExportedFile> export_stablehlo(const std::shared_ptr<const Checkpoint>& checkpoint,
                                           const std::string& target,
                                           const StablehloExportOptions& options) {
  ADDER_CHECK(!options.blocks.empty(), "blocks: expected at least 1 size, got none");
  for (const int64_t block : options.blocks)
    ADDER_CHECK(block >= 2 && block <= 65536, "blocks: expected 2 to 65536 tokens, got {}", block);
  ADDER_CHECK(options.batch >= 1 && options.batch <= 4096,
              "batch: expected 1 to 4096 sequences, got {}", options.batch);
  return StablehloExport(checkpoint, target, options).run();
}

}  // namespace adder
