#include "engine/calibration.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "backends/registry.h"
#include "core/error.h"
#include "model/language_model.h"

namespace adder {
namespace {

// Hands every operation on and looks at the input of products.
class ObservingBackend final : public Backend {
 public:
  explicit ObservingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override {
    const Tensor imported = inner_->import_weight(host, use, owner);
    inputs_[key(imported)].host = host.data;
    return imported;
  }
  void read(const Tensor& t, std::span<std::byte> host) override { inner_->read(t, host); }
  void write(const Tensor& t, std::span<const std::byte> host) override { inner_->write(t, host); }
  void embedding(const EmbeddingArgs& a) override { inner_->embedding(a); }
  void rms_norm(const RmsNormArgs& a) override { inner_->rms_norm(a); }
  void gated_rms_norm(const GatedRmsNormArgs& a) override { inner_->gated_rms_norm(a); }
  void causal_conv1d(const CausalConv1dArgs& a) override { inner_->causal_conv1d(a); }
  void selective_scan(const SelectiveScanArgs& a) override { inner_->selective_scan(a); }
  void ssd_scan(const SsdScanArgs& a) override { inner_->ssd_scan(a); }
  void sample(const SampleArgs& a) override { inner_->sample(a); }
  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override {
    inner_->gather_rows(x, rows, out);
  }
  void state_zero(const Tensor& state, int32_t slot) override { inner_->state_zero(state, slot); }
  void synchronize() override { inner_->synchronize(); }
  void state_copy(const Tensor& state, int32_t from, int32_t to) override {
    inner_->state_copy(state, from, to);
  }

  void matmul(const MatmulArgs& a) override {
    inner_->matmul(a);
    Input& input = inputs_[key(a.weight)];
    const auto columns = static_cast<size_t>(a.x.dim(1));
    input.squares.resize(columns);
    row_.resize(columns);
    for (int64_t t = 0; t < a.x.dim(0); ++t) {
      inner_->read(a.x.slice(0, t, 1), std::as_writable_bytes(std::span(row_)));
      for (size_t k = 0; k < columns; ++k)
        input.squares[k] += static_cast<double>(row_[k]) * row_[k];
    }
    input.rows += a.x.dim(0);
  }

  // The mean squares of the products with a host tensor; empty when there were none.
  std::vector<double> mean_squares(const void* host) const {
    for (const auto& [weight, input] : inputs_) {
      if (input.host != host || input.rows == 0) continue;
      std::vector<double> mean = input.squares;
      for (double& v : mean) v /= static_cast<double>(input.rows);
      return mean;
    }
    return {};
  }

 private:
  struct Input {
    const void* host = nullptr;
    std::vector<double> squares;
    int64_t rows = 0;
  };
  using Key = std::pair<const void*, int64_t>;
  static Key key(const Tensor& t) { return {t.data, t.offset}; }

  std::unique_ptr<Backend> inner_;
  std::map<Key, Input> inputs_;
  std::vector<float> row_;
};

void run(const LanguageModel& model, Backend& backend, std::span<const int32_t> tokens,
         const CalibrationOptions& options) {
  constexpr int64_t kBlock = 256, kLogitRows = 16;
  StatePool states(model.config(), backend, 1);
  Workspace workspace(model.config(), backend, kBlock, kLogitRows);
  const StateHandle state = states.acquire();
  const std::vector<int32_t> slots = {state.slot()};
  const auto total = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < total; begin += kBlock) {
    if (options.cancel != nullptr && options.cancel->load()) {
      fail(ErrorCode::kIo, "calibration: interrupted");
    }
    const auto n = static_cast<int32_t>(std::min(kBlock, total - begin));
    const std::vector<int32_t> starts = {0, n};
    const auto block = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    const Tensor hidden = model.forward(block, {starts, slots}, states, workspace);
    for (int32_t row = 0; row < n; row += kLogitRows) {  // for the head's input
      std::vector<int32_t> rows(static_cast<size_t>(std::min<int64_t>(kLogitRows, n - row)));
      std::iota(rows.begin(), rows.end(), row);
      model.logits(hidden, rows, workspace);
    }
    if (options.on_progress) options.on_progress(begin + n);
  }
}

}  // namespace

Importance calibrate(const std::shared_ptr<const Checkpoint>& source,
                     std::span<const int32_t> tokens, const CalibrationOptions& options) {
  ADDER_CHECK(tokens.size() >= 2, "calibration: expected at least 2 tokens, got {}", tokens.size());
  ObservingBackend backend(make_backend("cpu", options.threads));
  const LanguageModel model(source, backend);
  run(model, backend, tokens, options);

  Importance importance;
  for (const auto& [name, t] : source->tensors()) {
    const std::vector<double> mean = backend.mean_squares(t.data);
    if (mean.empty()) continue;
    const double floor =
        0.01 * std::accumulate(mean.begin(), mean.end(), 0.0) / static_cast<double>(mean.size());
    if (!std::isfinite(floor)) {
      bad_input("{}: calibration: expected finite inputs of tensor '{}', got NaN or Inf", t.file,
                name);
    }
    std::vector<float>& weights = importance[name];
    for (const double v : mean) weights.push_back(static_cast<float>(v + floor));
  }
  return importance;
}

}  // namespace adder
