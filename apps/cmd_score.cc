// adder score: how well a model predicts given texts, per line and in total.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numbers>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/scoring.h"

namespace adder {
namespace {

struct ScoreOptions {
  cli::ModelOptions model;
  std::vector<std::string> arguments;  // [MODEL] FILE...
  bool json = false, quiet = false;
};

struct Score {
  double nll = 0;  // natural logarithm
  int64_t tokens = 0, bytes = 0;

  void add(const Score& other) {
    nll += other.nll;
    tokens += other.tokens;
    bytes += other.bytes;
  }
  double bits_per_byte() const {
    return bytes > 0 ? nll / std::numbers::ln2 / static_cast<double>(bytes) : 0;
  }
  double perplexity() const { return tokens > 0 ? std::exp(nll / static_cast<double>(tokens)) : 0; }
  nlohmann::ordered_json to_json() const {
    return {{"nll", nll},
            {"tokens", tokens},
            {"bytes", bytes},
            {"bits_per_byte", bits_per_byte()},
            {"perplexity", perplexity()}};
  }
};

// The text is one sequence. A token belongs to the line on which it begins; a line includes its
// newline. Without a token that can be put in front, the first one costs nothing and is not
// counted.
std::vector<Score> score_lines(Engine& engine, const std::string& name, const std::string& text) {
  const std::vector<int32_t> body = engine.tokenizer().encode(text);
  std::vector<int32_t> ids;
  ids.reserve(body.size() + 1);
  if (const auto start = text_start(engine)) ids.push_back(*start);
  const bool first_is_predicted = !ids.empty();
  for (const int32_t id : body) ids.push_back(id);

  std::vector<Score> lines(1);
  for (size_t i = 0; i < text.size(); ++i) {
    ++lines.back().bytes;
    if (text[i] == '\n' && i + 1 < text.size()) lines.emplace_back();
  }
  cli::Progress progress(name, static_cast<int64_t>(ids.size()));
  const std::vector<double> nll =
      next_token_nll(engine, ids, [&](int64_t done) { progress.update(done); });
  size_t line = 0;
  for (size_t i = 0; i < body.size(); ++i) {
    Score& s = lines[std::min(line, lines.size() - 1)];
    if (first_is_predicted || i > 0) {
      s.nll += nll[first_is_predicted ? i : i - 1];
      ++s.tokens;
    }
    const std::string_view bytes = engine.tokenizer().token_bytes(body[i]);
    line += static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  }
  return lines;
}

void score(ScoreOptions& o) {
  std::vector<std::string> files = o.arguments;
  if (files.size() >= 2) {
    o.model.model = files.front();
    files.erase(files.begin());
  }
  const auto engine = cli::load_engine(o.model, 16);
  nlohmann::ordered_json report = {{"model", o.model.model.empty() ? "demo" : o.model.model},
                                   {"device", engine->backend().description()},
                                   {"files", nlohmann::json::array()}};
  Score total;
  for (const std::string& file : files) {
    const std::string text = file == "-" ? cli::read_stdin() : cli::read_file(file);
    if (text.empty()) bad_input("{}: expected text, got an empty file", file);
    const std::vector<Score> lines = score_lines(*engine, file, text);
    Score sum;
    nlohmann::ordered_json rows = nlohmann::json::array();
    for (size_t i = 0; i < lines.size(); ++i) {
      sum.add(lines[i]);
      if (o.json && !o.quiet) rows.push_back(lines[i].to_json());
      if (!o.json && !o.quiet) {
        fmt::print("{}:{}\t{:.4f}\t{} tokens\t{:.4f} bits/byte\n", file, i + 1, lines[i].nll,
                   lines[i].tokens, lines[i].bits_per_byte());
      }
    }
    total.add(sum);
    nlohmann::ordered_json entry = {{"file", file}};
    entry.update(sum.to_json());
    if (!o.quiet) entry["lines"] = std::move(rows);
    report["files"].push_back(std::move(entry));
    if (!o.json) {
      fmt::print("{}: {} tokens, {} bytes, nll {:.4f}, {:.4f} bits per byte, perplexity {:.4f}\n",
                 file, sum.tokens, sum.bytes, sum.nll, sum.bits_per_byte(), sum.perplexity());
    }
  }
  if (o.json) {
    report["total"] = total.to_json();
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (files.size() > 1) {
    fmt::print("total: {} tokens, {} bytes, nll {:.4f}, {:.4f} bits per byte, perplexity {:.4f}\n",
               total.tokens, total.bytes, total.nll, total.bits_per_byte(), total.perplexity());
  }
}

}  // namespace

void add_score(CLI::App& app) {
  auto o = std::make_shared<ScoreOptions>();
  CLI::App* c =
      app.add_subcommand("score", "Negative log-likelihood of texts, per line and in total");
  c->footer(
      "With one argument the demo model scores that file; with more the first is the MODEL. A "
      "FILE\n"
      "'-' is standard input. nll is in nats; perplexity is per token, so it compares models of "
      "one\n"
      "tokenizer only, bits per byte compares all.");
  c->add_option("FILE", o->arguments, "[MODEL] FILE...")
      ->required()
      ->expected(1, -1)
      ->type_name("");
  cli::add_engine_options(*c, o->model);
  c->add_flag("--json", o->json, "Print one JSON object");
  c->add_flag("--quiet", o->quiet, "Totals only, no lines");
  c->callback([o] { score(*o); });
}

}  // namespace adder
