// adder quantize: a model with smaller weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/calibration.h"
#include "engine/model_source.h"
#include "engine/quantize.h"

namespace adder {
namespace {

struct QuantizeArguments {
  std::string source, target, type = "q8_0", calibration;
  int64_t calibration_tokens = 65536;
  bool llama_compatible = false, json = false;
  int threads = 0;
};

const std::map<std::string, DType> kTypes = {{"bf16", DType::kBF16},
                                             {"f16", DType::kF16},
                                             {"q8_0", DType::kQ8_0},
                                             {"q4_0", DType::kQ4_0},
                                             {"q4_k", DType::kQ4_K}};

double megabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

void print_table(const QuantizeArguments& a, const QuantizeReport& r) {
  size_t width = 6, kept = 0;
  for (const TensorReport& t : r.tensors)
    if (t.to != DType::kF32) width = std::max(width, t.name.size());
  fmt::print("{:<{}}  {:>14}  {:<12}  {:>7}  {:>11}  {:>10}\n", "tensor", width, "shape", "dtype",
             "bits", "rms error", "max error");
  for (const TensorReport& t : r.tensors) {
    if (t.to == DType::kF32) {
      ++kept;
      continue;
    }
    fmt::print("{:<{}}  {:>14}  {:<12}  {:>7.4g}  {:>9.4f} %  {:>10.3g}\n", t.name, width,
               fmt::format("({})", fmt::join(t.shape, ", ")),
               fmt::format("{} > {}", dtype_name(t.from), dtype_name(t.to)), t.bits_per_weight,
               100 * t.relative_rms, t.max_error);
  }
  fmt::print("{} more in F32, exact\n", kept);
  fmt::print("{}: {:.1f} MB, was {:.1f} MB; written and read back\n", a.target, megabytes(r.bytes),
             megabytes(r.source_bytes));
}

nlohmann::ordered_json to_json(const QuantizeArguments& a, const QuantizeReport& r) {
  nlohmann::ordered_json j = {{"source", a.source.empty() ? "demo" : a.source},
                              {"target", a.target},
                              {"type", a.type},
                              {"source_bytes", r.source_bytes},
                              {"bytes", r.bytes},
                              {"warnings", r.warnings},
                              {"tensors", nlohmann::json::array()}};
  for (const TensorReport& t : r.tensors) {
    j["tensors"].push_back({{"name", t.name},
                            {"from", dtype_name(t.from)},
                            {"to", dtype_name(t.to)},
                            {"shape", t.shape},
                            {"relative_rms_error", t.relative_rms},
                            {"max_error", t.max_error},
                            {"bits_per_weight", t.bits_per_weight}});
  }
  return j;
}

void quantize(QuantizeArguments& a) {
  const auto source = std::make_shared<const Checkpoint>(open_model(a.source));
  QuantizeOptions o;
  o.type = kTypes.at(a.type);
  o.llama_compatible = a.llama_compatible;
  o.threads = a.threads;
  o.cancel = &cli::watch_interrupt();
  if (!a.calibration.empty()) {
    const std::string text =
        a.calibration == "-" ? cli::read_stdin() : cli::read_file(a.calibration);
    const auto tokenizer = find_tokenizer(*source);
    if (!tokenizer) {
      bad_input("{}: expected a tokenizer beside the weights for --calibration, got none",
                source->path());
    }
    std::vector<int32_t> ids = tokenizer->encode(text);
    ids.resize(std::min(ids.size(), static_cast<size_t>(a.calibration_tokens)));
    cli::Progress progress(a.calibration, static_cast<int64_t>(ids.size()));
    CalibrationOptions calibration;
    calibration.threads = a.threads;
    calibration.cancel = o.cancel;
    calibration.on_progress = [&](int64_t done) { progress.update(done); };
    o.importance = calibrate(source, ids, calibration);
  }
  std::optional<cli::Progress> progress;
  o.on_progress = [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace(a.target, total, "weights");
    progress->update(done);
  };
  const QuantizeReport report = quantize_model(*source, a.target, o);
  progress.reset();
  for (const std::string& warning : report.warnings) fmt::print(stderr, "warning: {}\n", warning);
  if (a.json) {
    fmt::print("{}\n",
               to_json(a, report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print_table(a, report);
  }
}

}  // namespace

void add_quantize(CLI::App& app) {
  CLI::App* c = app.add_subcommand("quantize", "Write a model again with smaller weights");
  c->footer(
      "SRC is a model, or '' for the demo model; DST a .gguf file or, for bf16 and f16, also a "
      "new\n"
      "folder of safetensors. A, D, dt bias, convolution, norms and biases stay F32; x_proj,\n"
      "dt_proj and the dt rows of Mamba-2's in_proj get 8 bits at least. A model whose d_model is\n"
      "no multiple of 256 gets q8_0 for q4_k; rows that are no multiple of 32 stay F16. DST\n"
      "appears once it is whole and was read back.");
  const auto a = std::make_shared<QuantizeArguments>();
  c->add_option("SRC", a->source, "Model to read")->required();
  c->add_option("DST", a->target, "File or folder to write")->required();
  c->add_option("--type", a->type, "bf16, f16, q8_0, q4_0 or q4_k")
      ->check(CLI::IsMember({"bf16", "f16", "q8_0", "q4_0", "q4_k"}))
      ->capture_default_str();
  c->add_option("--calibration", a->calibration,
                "Text whose activations weigh the errors of q4_0 and q4_k; '-' is standard input");
  c->add_option("--calibration-tokens", a->calibration_tokens, "At most so many tokens of it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->capture_default_str();
  c->add_flag("--llama-compatible", a->llama_compatible,
              "Tensors that llama.cpp knows only: Mamba-2's dt rows get the type of in_proj");
  c->add_option("--threads", a->threads, "Threads; 0: one per CPU available")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  c->add_flag("--json", a->json, "Print one JSON object");
  c->callback([a] { quantize(*a); });
}

}  // namespace adder
