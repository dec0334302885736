// adder logits: raw float32 logits, for comparing with other implementations.
#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/atomic_file.h"
#include "engine/scoring.h"

namespace adder {
namespace {

struct LogitsOptions {
  cli::ModelOptions model;
  std::string tokens;
  int64_t last = 1;
  bool json = false;
  std::string out;
};

// NumPy's .npy format, version 1.0: a padded header that ends at a multiple of 64, then the data.
std::string npy_header(int64_t rows, int64_t cols) {
  static_assert(std::endian::native == std::endian::little);
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  const size_t unpadded = 10 + dict.size() + 1;
  dict.append((64 - unpadded % 64) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

void logits(const LogitsOptions& o) {
  if (!o.out.empty()) AtomicFile::check_target(o.out);
  const std::vector<int32_t> ids = cli::read_ids(o.tokens);
  const auto engine = cli::load_engine(o.model, 16);
  const std::vector<float> values = last_logits(*engine, ids, o.last);
  const int64_t vocab = engine->config().vocab_rows;
  if (!o.out.empty()) {
    const std::string header = npy_header(o.last, vocab);
    AtomicFile file(o.out);
    file.write(std::as_bytes(std::span(header)));
    file.write(std::as_bytes(std::span(values)));
    file.commit();
    return;
  }
  if (o.json) {
    nlohmann::ordered_json j;
    j["model"] = o.model.model.empty() ? "demo" : o.model.model;
    j["device"] = engine->backend().description();
    j["shape"] = {o.last, vocab};
    j["logits"] = nlohmann::json::array();
    for (int64_t row = 0; row < o.last; ++row) {
      j["logits"].push_back(
          std::vector<float>(values.begin() + row * vocab, values.begin() + (row + 1) * vocab));
    }
    fmt::print("{}\n", j.dump());
    return;
  }
  for (int64_t row = 0; row < o.last; ++row) {
    fmt::print("{}\n", fmt::join(std::span(values).subspan(static_cast<size_t>(row * vocab),
                                                           static_cast<size_t>(vocab)),
                                 " "));
  }
}

}  // namespace

void add_logits(CLI::App& app) {
  auto o = std::make_shared<LogitsOptions>();
  CLI::App* c =
      app.add_subcommand("logits", "Raw float32 logits of the last positions of a prompt");
  c->footer("Rows are positions, columns are ids, padding of the vocabulary included.");
  c->add_option("model", o->model.model, "Model; without it the demo model")->type_name("MODEL");
  c->add_option("--tokens", o->tokens, "Ids separated by commas; @FILE or - for long lists")
      ->required();
  c->add_option("--last", o->last, "How many positions")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  cli::add_engine_options(*c, o->model);
  auto* json = c->add_flag("--json", o->json, "Print one JSON object");
  c->add_option("--out", o->out, "Write a NumPy file instead")
      ->type_name("FILE.npy")
      ->excludes(json);
  c->callback([o] { logits(*o); });
}

}  // namespace adder
