// adder convert: a model in another container.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli_common.h"
#include "commands.h"
#include "engine/model_source.h"
#include "engine/quantize.h"

namespace adder {
namespace {

struct ConvertArguments {
  std::string source, target;
  int threads = 0;
};

void convert(const ConvertArguments& a) {
  const Checkpoint source = open_model(a.source);
  QuantizeOptions o;
  o.type = std::nullopt;
  o.threads = a.threads;
  o.cancel = &cli::watch_interrupt();
  std::optional<cli::Progress> progress;
  o.on_progress = [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace(a.target, total, "weights");
    progress->update(done);
  };
  const QuantizeReport report = quantize_model(source, a.target, o);
  progress.reset();
  for (const std::string& warning : report.warnings) fmt::print(stderr, "warning: {}\n", warning);
  fmt::print("{}: {} tensors, {:.1f} MB; written and read back\n", a.target, report.tensors.size(),
             static_cast<double>(report.bytes) / 1e6);
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* c = app.add_subcommand("convert", "Write a model again in another container");
  c->footer(
      "SRC is a model of any kind, or '' for the demo model. DST that ends in .gguf becomes a "
      "GGUF\n"
      "file with the tokenizer inside, for Adder and llama.cpp; any other DST a new folder in the\n"
      "dialect of Hugging Face: model.safetensors, config.json and the tokenizer. Matrices keep\n"
      "their types (in a folder, quantized ones become F32); A, D, dt bias, convolution, norms "
      "and\n"
      "biases become F32. DST appears once it is whole and was read back; SRC is never written.");
  const auto a = std::make_shared<ConvertArguments>();
  c->add_option("SRC", a->source, "Model to read")->required();
  c->add_option("DST", a->target, "File or folder to write")->required();
  c->add_option("--threads", a->threads, "Threads; 0: one per CPU available")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  c->callback([a] { convert(*a); });
}

}  // namespace adder
