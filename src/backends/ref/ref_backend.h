// The definition of right: one thread, plain loops, sums in double. Slow on purpose.
#pragma once

#include "kernels/backend.h"

namespace adder {

class RefBackend final : public Backend {
 public:
  std::string_view name() const override { return "ref"; }
  std::string description() const override { return "ref, plain loops, float64 sums"; }

  Buffer allocate(size_t bytes) override;
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override;
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
  void synchronize() override {}
  void state_copy(const Tensor& state, int32_t from, int32_t to) override;
};

}  // namespace adder
