#include "bench_report.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/machine.h"

namespace adder::cli {
namespace {

using Json = nlohmann::ordered_json;

Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

// What a phase comes to.
struct Row {
  Spread tokens_per_second;
  double bytes_per_second, flops;  // of weights, once for each step; in the matrices
  std::optional<double> joules_per_token;
};

Row row_of(const PhaseResult& p, double steps, double flops) {
  Row row{
      rate_of(p.all_tokens(), p.seconds), steps / p.seconds.median, flops / p.seconds.median, {}};
  if (p.joules) row.joules_per_token = *p.joules / p.all_tokens();
  return row;
}

Row prefill_row(const BenchModel& m, const ModelBenchResult& r) {
  const int64_t block = m.engine->block();
  const int64_t blocks = (r.prefill.tokens + block - 1) / block;
  return row_of(r.prefill, static_cast<double>(blocks) * r.cost.weight_bytes,
                r.prefill.all_tokens() * r.cost.layer_flops + r.cost.head_flops);
}

Row decode_row(const ModelBenchResult& r, const PhaseResult& p) {
  return row_of(p, static_cast<double>(p.tokens) * r.cost.weight_bytes,
                p.all_tokens() * (r.cost.layer_flops + r.cost.head_flops));
}

Json ops_json(const PhaseResult& p, const LimitRates& rates) {
  Json list = Json::array();
  const double runs = p.profiled_seconds / p.seconds.median;  // about `repeat`
  for (const OpTimes& op : p.ops) {
    const Bound bound = bound_of(op.cost, rates);
    Json j = {{"name", op.name}};
    if (!op.detail.empty()) j["detail"] = op.detail;
    j["calls"] = op.calls;
    j["seconds"] = op.seconds;
    j["of_time"] = op.seconds / p.profiled_seconds;
    j["seconds_per_token"] = op.seconds / (runs * p.all_tokens());
    j["memory_bytes"] = op.cost.memory_bytes;
    j["cache_bytes"] = op.cost.cache_bytes;
    j["flops"] = op.cost.flops;
    j["int8_ops"] = op.cost.int8_ops;
    j["exp2"] = op.cost.exp2;
    j["limit"] = limit_name(bound.limit);
    j["limit_seconds"] = bound.seconds;
    j["of_limit"] = bound.seconds / op.seconds;
    list.push_back(std::move(j));
  }
  return list;
}

Json phase_json(const PhaseResult& p, const Row& row, const LimitRates& rates) {
  Json j;
  j["seconds"] = spread_json(p.seconds);
  j["tok_s"] = spread_json(row.tokens_per_second);
  j["weight_gb_s"] = row.bytes_per_second * 1e-9;
  j["of_read"] = row.bytes_per_second / rates[Limit::kMemoryRead];
  j["gflop_s"] = row.flops * 1e-9;
  j["of_fma"] = row.flops / rates[Limit::kFma];
  if (row.joules_per_token) j["joules_per_token"] = *row.joules_per_token;
  if (!p.ops.empty()) j["operations"] = ops_json(p, rates);
  return j;
}

}  // namespace

std::string prefill_title(const ModelBenchResult& r) {
  return fmt::format("prefill {}", r.prefill.tokens);
}

std::string decode_title(const PhaseResult& p) {
  return fmt::format("decode {} x {}", p.tokens, p.batch);
}

std::string bench_json(const BenchModel& m, const ModelBenchOptions& options,
                       const ModelBenchResult& r) {
  Json j;
  j["model"] = m.name;
  if (!m.type.empty()) j["type"] = m.type;
  j["cpu"] = cpu_name();
  j["device"] = m.engine->backend().description();
  j["block"] = m.engine->block();
  j["repeat"] = options.repeat;
  j["weight_bytes"] = r.cost.weight_bytes;
  j["state_bytes"] = m.engine->config().state_bytes();
  if (!m.type.empty()) j["create_s"] = m.create_s;
  j["load_s"] = m.load_s;
  j["peak_rss_bytes"] = r.peak_resident_bytes;
  if (const auto memory = m.engine->device_memory()) j["device_memory_bytes"] = memory->used;
  j["limits"] = Json::object();
  for (const Limit limit : kLimits) j["limits"][std::string(limit_name(limit))] = r.rates[limit];
  j["prefill"] = {{"tokens", r.prefill.tokens}};
  j["prefill"].update(phase_json(r.prefill, prefill_row(m, r), r.rates));
  j["decode"] = Json::array();
  for (const PhaseResult& p : r.decode) {
    Json entry = {{"batch", p.batch}, {"steps", p.tokens}};
    entry.update(phase_json(p, decode_row(r, p), r.rates));
    j["decode"].push_back(std::move(entry));
  }
  return j.dump() + "\n";
}

std::string bench_table(const BenchModel& m, const ModelBenchResult& r) {
  fmt::memory_buffer out;
  const auto print = [&](fmt::string_view format, const auto&... values) {
    fmt::vformat_to(std::back_inserter(out), format, fmt::make_format_args(values...));
  };
  print("{}{}{}; {}; {}\n", m.name, m.type.empty() ? "" : " ", m.type, cpu_name(),
        m.engine->backend().description());
  print("weights {:.1f} MB, state {:.1f} MB a sequence, load {:.2f} s, peak memory {:.0f} MB{}\n",
        r.cost.weight_bytes * 1e-6, static_cast<double>(m.engine->config().state_bytes()) * 1e-6,
        m.load_s, static_cast<double>(r.peak_resident_bytes) * 1e-6,
        cli::device_memory_text(*m.engine));
  print("this run: memory read {:.1f} GB/s, float32 {:.1f} GFLOP/s, int8 {:.1f} GOP/s\n\n",
        r.rates[Limit::kMemoryRead] * 1e-9, r.rates[Limit::kFma] * 1e-9,
        r.rates[Limit::kInt8] * 1e-9);
  const bool energy = r.prefill.joules.has_value();
  print("{:<16} {:>9} {:>21} {:>8} {:>7} {:>9} {:>6}{}\n", "", "tokens/s", "min to max", "GB/s",
        "of read", "GFLOP/s", "of FMA", energy ? "  J/token" : "");
  const auto print_row = [&](const std::string& title, const Row& row) {
    const Spread& t = row.tokens_per_second;
    print("{:<16} {:>9.1f} {:>21} {:>8.2f} {:>6.0f}% {:>9.1f} {:>5.0f}%", title, t.median,
          fmt::format("{:.1f} to {:.1f}", t.min, t.max), row.bytes_per_second * 1e-9,
          100 * row.bytes_per_second / r.rates[Limit::kMemoryRead], row.flops * 1e-9,
          100 * row.flops / r.rates[Limit::kFma]);
    if (row.joules_per_token) print(" {:>8.3f}", *row.joules_per_token);
    print("\n");
  };
  print_row(prefill_title(r), prefill_row(m, r));
  for (const PhaseResult& p : r.decode) print_row(decode_title(p), decode_row(r, p));
  return fmt::to_string(out);
}

std::string profile_table(const std::string& title, const PhaseResult& p, const LimitRates& rates) {
  fmt::memory_buffer out;
  const auto print = [&](fmt::string_view format, const auto&... values) {
    fmt::vformat_to(std::back_inserter(out), format, fmt::make_format_args(values...));
  };
  // Times for one token, averages of all runs.
  const double runs = p.profiled_seconds / p.seconds.median;
  const double scale = 1e6 / (runs * p.all_tokens());
  print("{:<16} {:<21} {:>10} {:>6} {:>10} {:>9}  {}\n", title, "", "us/token", "share", "limit us",
        "of limit", "bound by");
  double inside = 0, limits = 0;
  for (const OpTimes& op : p.ops) {
    const Bound bound = bound_of(op.cost, rates);
    inside += op.seconds;
    limits += bound.seconds;
    print("{:<16} {:<21} {:>10.2f} {:>5.1f}% {:>10.2f} {:>8.0f}%  {}\n", op.name, op.detail,
          op.seconds * scale, 100 * op.seconds / p.profiled_seconds, bound.seconds * scale,
          100 * bound.seconds / op.seconds, limit_name(bound.limit));
  }
  const double outside = p.profiled_seconds - inside;
  print("{:<16} {:<21} {:>10.2f} {:>5.1f}%\n", "(outside)", "", outside * scale,
        100 * outside / p.profiled_seconds);
  print("{:<16} {:<21} {:>10.2f} {:>5.1f}% {:>10.2f} {:>8.0f}%\n", "all", "",
        p.profiled_seconds * scale, 100.0, limits * scale, 100 * limits / p.profiled_seconds);
  return fmt::to_string(out);
}

}  // namespace adder::cli
