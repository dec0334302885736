#include "measure/profiler.h"

#include <fmt/format.h>

#include <algorithm>

namespace adder {
namespace {

OpCost copy_cost(double elements) {
  OpCost c;
  c.cache_bytes = 2 * sizeof(float) * elements;
  return c;
}

std::string_view matrix_name(const ModelConfig& c, int64_t rows, int64_t columns) {
  const auto is = [&](int64_t r, int64_t k) { return rows == r && columns == k; };
  if (is(c.vocab_rows, c.d_model)) return "head";
  if (is(c.in_proj_rows(), c.d_model)) return "in_proj";
  if (is(c.in_proj_rows() - c.n_heads, c.d_model)) return "in_proj";  // without its dt rows
  if (c.n_heads > 0 && is(c.n_heads, c.d_model)) return "in_proj_dt";
  if (is(c.d_model, c.d_inner)) return "out_proj";
  if (is(c.dt_rank + 2 * c.d_state, c.d_inner)) return "x_proj";
  if (is(c.d_inner, c.dt_rank)) return "dt_proj";
  return "matmul";
}

}  // namespace

void ProfilingBackend::reset() {
  entries_.clear();
}

template <typename Call>
void ProfilingBackend::timed(const Key& key, const OpCost& cost, Call&& call) {
  const double begin = seconds_now();
  call();
  inner_->synchronize();  // or the time would be that of queueing it
  const double end = seconds_now();
  Entry& entry = entries_.try_emplace(key, Entry{entries_.size()}).first->second;
  ++entry.calls;
  entry.seconds += end - begin;
  entry.cost += cost;
}

std::vector<OpTimes> ProfilingBackend::times(const ModelConfig& config) const {
  std::vector<OpTimes> out(entries_.size());
  for (const auto& [key, entry] : entries_) {
    const auto& [op, rows, columns, type] = key;
    OpTimes& t = out[entry.order];
    t.name = rows == 0 ? op : matrix_name(config, rows, columns);
    if (rows != 0) t.detail = fmt::format("{} x {} {}", rows, columns, dtype_name(type));
    t.calls = entry.calls;
    t.seconds = entry.seconds;
    t.cost = entry.cost;
  }
  return out;
}

void ProfilingBackend::read(const Tensor& tensor, std::span<std::byte> host) {
  timed({"read", 0, 0, {}}, copy_cost(static_cast<double>(tensor.size())),
        [&] { inner_->read(tensor, host); });
}
void ProfilingBackend::write(const Tensor& tensor, std::span<const std::byte> host) {
  timed({"write", 0, 0, {}}, copy_cost(static_cast<double>(tensor.size())),
        [&] { inner_->write(tensor, host); });
}
void ProfilingBackend::embedding(const EmbeddingArgs& args) {
  timed({"embedding", 0, 0, {}}, cost_of(args), [&] { inner_->embedding(args); });
}
void ProfilingBackend::rms_norm(const RmsNormArgs& args) {
  timed({"rms_norm", 0, 0, {}}, cost_of(args), [&] { inner_->rms_norm(args); });
}
void ProfilingBackend::gated_rms_norm(const GatedRmsNormArgs& args) {
  timed({"gated_rms_norm", 0, 0, {}}, cost_of(args), [&] { inner_->gated_rms_norm(args); });
}
void ProfilingBackend::matmul(const MatmulArgs& args) {
  timed({"matmul", args.weight.dim(0), args.weight.dim(1), args.weight.dtype}, cost_of(args),
        [&] { inner_->matmul(args); });
}
void ProfilingBackend::causal_conv1d(const CausalConv1dArgs& args) {
  timed({"causal_conv1d", 0, 0, {}}, cost_of(args), [&] { inner_->causal_conv1d(args); });
}
void ProfilingBackend::selective_scan(const SelectiveScanArgs& args) {
  timed({"selective_scan", 0, 0, {}}, cost_of(args), [&] { inner_->selective_scan(args); });
}
void ProfilingBackend::ssd_scan(const SsdScanArgs& args) {
  timed({"ssd_scan", 0, 0, {}}, cost_of(args), [&] { inner_->ssd_scan(args); });
}
void ProfilingBackend::sample(const SampleArgs& args) {
  timed({"sample", 0, 0, {}}, cost_of(args), [&] { inner_->sample(args); });
}
void ProfilingBackend::gather_rows(const Tensor& x, std::span<const int32_t> rows,
                                   const Tensor& out) {
  timed({"gather_rows", 0, 0, {}}, copy_cost(static_cast<double>(out.size())),
        [&] { inner_->gather_rows(x, rows, out); });
}
void ProfilingBackend::state_zero(const Tensor& state, int32_t slot) {
  const int64_t slot_size = state.size() / state.dim(0);
  const auto elements = static_cast<double>(slot_size);
  timed({"state_zero", 0, 0, {}}, copy_cost(elements / 2),
        [&] { inner_->state_zero(state, slot); });
}
void ProfilingBackend::state_copy(const Tensor& state, int32_t from, int32_t to) {
  const int64_t slot_size = state.size() / state.dim(0);
  const auto elements = static_cast<double>(slot_size);
  timed({"state_copy", 0, 0, {}}, copy_cost(elements),
        [&] { inner_->state_copy(state, from, to); });
}

}  // namespace adder
