// adder bench: the speed of a model, against the limits of the machine measured in the same run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench_source.h"
#include "commands.h"
#include "core/error.h"
#include "measure/machine.h"
#include "measure/model_bench.h"
#include "status_line.h"

namespace adder {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  cli::BenchSource source;
  ModelBenchOptions bench;
  bool json = false;
};

Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

// What one result comes to.
struct Row {
  std::string name;
  Spread tokens_per_second;
  double bytes_per_second, flops;  // of weights; in the matrices
  std::optional<double> joules_per_token;
};

Row prefill_row(const BenchOptions& o, const Engine& engine, const ModelBenchResult& r) {
  const auto tokens = static_cast<double>(r.prefill.tokens);
  const double blocks =
      static_cast<double>((r.prefill.tokens + engine.block() - 1) / engine.block());
  Row row{fmt::format("prefill {}", o.bench.prompt), rate_of(tokens, r.prefill.seconds), 0, 0, {}};
  row.bytes_per_second = blocks * r.cost.weight_bytes / r.prefill.seconds.median;
  row.flops = (tokens * r.cost.layer_flops + r.cost.head_flops) / r.prefill.seconds.median;
  if (r.prefill.joules) row.joules_per_token = *r.prefill.joules / tokens;
  return row;
}

Row decode_row(const ModelBenchResult& r, const DecodeResult& d) {
  const auto steps = static_cast<double>(d.steps), batch = static_cast<double>(d.batch);
  Row row{
      fmt::format("decode {} x {}", d.steps, d.batch), rate_of(steps * batch, d.seconds), 0, 0, {}};
  row.bytes_per_second = steps * r.cost.weight_bytes / d.seconds.median;
  row.flops = steps * batch * (r.cost.layer_flops + r.cost.head_flops) / d.seconds.median;
  if (d.joules) row.joules_per_token = *d.joules / (steps * batch);
  return row;
}

Json row_json(const Row& row, const ModelBenchResult& r) {
  Json j;
  j["tok_s"] = spread_json(row.tokens_per_second);
  j["weight_gb_s"] = row.bytes_per_second * 1e-9;
  j["of_read"] = row.bytes_per_second / r.read_rate;
  j["gflop_s"] = row.flops * 1e-9;
  j["of_fma"] = row.flops / r.fma_rate;
  if (row.joules_per_token) j["joules_per_token"] = *row.joules_per_token;
  return j;
}

void print_json(const BenchOptions& o, const cli::BenchModel& m, const ModelBenchResult& r) {
  Json j;
  j["model"] = m.name;
  if (!m.type.empty()) j["type"] = m.type;
  j["cpu"] = cpu_name();
  j["device"] = m.engine->backend().description();
  j["block"] = m.engine->block();
  j["repeat"] = o.bench.repeat;
  j["weight_bytes"] = r.cost.weight_bytes;
  j["state_bytes"] = m.engine->config().state_bytes();
  if (!m.type.empty()) j["create_s"] = m.create_s;
  j["load_s"] = m.load_s;
  j["peak_rss_bytes"] = r.peak_resident_bytes;
  j["ceilings"] = {{"read_gb_s", r.read_rate * 1e-9},
                   {"fma_gflop_s", r.fma_rate * 1e-9},
                   {"int8_gop_s", r.int8_rate * 1e-9}};
  j["prefill"] = {{"tokens", r.prefill.tokens}, {"seconds", spread_json(r.prefill.seconds)}};
  j["prefill"].update(row_json(prefill_row(o, *m.engine, r), r));
  j["decode"] = Json::array();
  for (const DecodeResult& d : r.decode) {
    Json entry = {{"batch", d.batch}, {"steps", d.steps}, {"seconds", spread_json(d.seconds)}};
    entry.update(row_json(decode_row(r, d), r));
    j["decode"].push_back(std::move(entry));
  }
  fmt::print("{}\n", j.dump());
}

void print_table(const BenchOptions& o, const cli::BenchModel& m, const ModelBenchResult& r) {
  fmt::print("{}{}{}; {}; {}\n", m.name, m.type.empty() ? "" : " ", m.type, cpu_name(),
             m.engine->backend().description());
  fmt::print(
      "weights {:.1f} MB, state {:.1f} MB a sequence, load {:.2f} s, peak memory {:.0f} MB\n",
      r.cost.weight_bytes * 1e-6, static_cast<double>(m.engine->config().state_bytes()) * 1e-6,
      m.load_s, static_cast<double>(r.peak_resident_bytes) * 1e-6);
  fmt::print("this run: memory read {:.1f} GB/s, float32 {:.1f} GFLOP/s, int8 {:.1f} GOP/s\n\n",
             r.read_rate * 1e-9, r.fma_rate * 1e-9, r.int8_rate * 1e-9);
  std::vector<Row> rows = {prefill_row(o, *m.engine, r)};
  for (const DecodeResult& d : r.decode) rows.push_back(decode_row(r, d));
  const bool energy = rows.front().joules_per_token.has_value();
  fmt::print("{:<16} {:>9} {:>21} {:>8} {:>7} {:>9} {:>6}{}\n", "", "tokens/s", "min to max",
             "GB/s", "of read", "GFLOP/s", "of FMA", energy ? "  J/token" : "");
  for (const Row& row : rows) {
    const Spread& t = row.tokens_per_second;
    fmt::print("{:<16} {:>9.1f} {:>21} {:>8.2f} {:>6.0f}% {:>9.1f} {:>5.0f}%", row.name, t.median,
               fmt::format("{:.1f} to {:.1f}", t.min, t.max), row.bytes_per_second * 1e-9,
               100 * row.bytes_per_second / r.read_rate, row.flops * 1e-9,
               100 * row.flops / r.fma_rate);
    if (row.joules_per_token) fmt::print(" {:>8.3f}", *row.joules_per_token);
    fmt::print("\n");
  }
}

void bench(BenchOptions& o) {
  o.bench.sampling.validate();
  cli::StatusLine status;
  status.show(o.source.synthetic.empty() ? "loading" : "making " + o.source.synthetic);
  const cli::BenchModel model =
      cli::load_bench_model(o.source, bench_engine_options({}, o.bench.batches));
  o.bench.threads = o.source.model.threads;
  o.bench.progress = [&](const std::string& line) { status.show(line); };
  o.bench.cancel = &cli::watch_interrupt();
  const ModelBenchResult result = bench_model(*model.engine, o.bench);
  status.clear();
  if (o.json) {
    print_json(o, model, result);
  } else {
    print_table(o, model, result);
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "Speed of a model, against the limits of the machine");
  c->footer(
      "Feeds a prompt of random ids and lets 1 or more sequences generate together, on the way "
      "that\n"
      "`adder run` takes, sampling included. Everything is measured in turn, --repeat times after "
      "a\n"
      "warm-up; the median and the extremes are printed. GB/s counts the weights once for each "
      "step;\n"
      "the limits it is compared with are measured between the repeats.");
  cli::add_bench_source(*c, o->source);
  c->add_option("--prompt", o->bench.prompt, "Tokens of the prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c->add_option("--gen", o->bench.gen, "Tokens that each sequence generates")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c->add_option("--batch", o->bench.batches, "Sequences that generate together, e.g. 1,4,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c->add_option("--repeat", o->bench.repeat, "Measurements of everything")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  cli::add_sampling_options(*c, o->bench.sampling);
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { bench(*o); });
}

}  // namespace adder
