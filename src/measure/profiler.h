// Time and work of each operation of a model: a backend around another one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "measure/forwarding_backend.h"
#include "measure/op_cost.h"
#include "model/config.h"

namespace adder {

struct OpTimes {
  std::string name;    // "in_proj", "selective_scan", ...
  std::string detail;  // of products: "3072 x 768 Q8_0"
  int64_t calls = 0;
  double seconds = 0;
  OpCost cost;  // of all calls
};

// Forwards every call and keeps its time. Put it around a backend with EngineOptions::wrap_backend;
// an engine without it pays nothing.
class ProfilingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void reset();
  // Since the last reset, in the order of their first calls. Products are named after the matrices
  // of `config`.
  std::vector<OpTimes> times(const ModelConfig& config) const;

  void read(const Tensor& tensor, std::span<std::byte> host) override;
  void write(const Tensor& tensor, std::span<const std::byte> host) override;
  void embedding(const EmbeddingArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void gated_rms_norm(const GatedRmsNormArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void causal_conv1d(const CausalConv1dArgs& args) override;
  void selective_scan(const SelectiveScanArgs& args) override;
  void ssd_scan(const SsdScanArgs& args) override;
  void sample(const SampleArgs& args) override;
  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override;
  void state_zero(const Tensor& state, int32_t slot) override;
  void state_copy(const Tensor& state, int32_t from, int32_t to) override;
  // None: its steps could not be told apart.
  std::unique_ptr<DecodeLoop> make_decode_loop(int64_t, int64_t, const DecodeStep&) override {
    return nullptr;
  }

 private:
  // Name of the operation, and shape and type of a product's weight.
  using Key = std::tuple<std::string_view, int64_t, int64_t, DType>;
  struct Entry {
    size_t order;
    int64_t calls = 0;
    double seconds = 0;
    OpCost cost;
  };

  template <typename Call>
  void timed(const Key& key, const OpCost& cost, Call&& call);

  std::map<Key, Entry> entries_;
};

// For EngineOptions::wrap_backend: *profiler is the engine's backend, for as long as it lives.
inline auto profile_into(ProfilingBackend** profiler) {
  return [profiler](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    auto outer = std::make_unique<ProfilingBackend>(std::move(inner));
    *profiler = outer.get();
    return outer;
  };
}

}  // namespace adder
