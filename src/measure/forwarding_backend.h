// A backend around another one that changes nothing: what looks at some operations derives from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/backend.h"

namespace adder {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override {
    return inner_->import_weight(host, use, owner);
  }
  Tensor matmul_view(const Tensor& rows) override { return inner_->matmul_view(rows); }
  void read(const Tensor& tensor, std::span<std::byte> host) override {
    inner_->read(tensor, host);
  }
  void write(const Tensor& tensor, std::span<const std::byte> host) override {
    inner_->write(tensor, host);
  }
  void synchronize() override { inner_->synchronize(); }
  void embedding(const EmbeddingArgs& args) override { inner_->embedding(args); }
  void rms_norm(const RmsNormArgs& args) override { inner_->rms_norm(args); }
  void gated_rms_norm(const GatedRmsNormArgs& args) override { inner_->gated_rms_norm(args); }
  void matmul(const MatmulArgs& args) override { inner_->matmul(args); }
  void causal_conv1d(const CausalConv1dArgs& args) override { inner_->causal_conv1d(args); }
  void selective_scan(const SelectiveScanArgs& args) override { inner_->selective_scan(args); }
  void ssd_scan(const SsdScanArgs& args) override { inner_->ssd_scan(args); }
  void sample(const SampleArgs& args) override { inner_->sample(args); }
  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override {
    inner_->gather_rows(x, rows, out);
  }
  void state_zero(const Tensor& state, int32_t slot) override { inner_->state_zero(state, slot); }
  void state_copy(const Tensor& state, int32_t from, int32_t to) override {
    inner_->state_copy(state, from, to);
  }
  std::unique_ptr<DecodeLoop> make_decode_loop(int64_t rows, int64_t vocab_limit,
                                               const DecodeStep& step) override {
    return inner_->make_decode_loop(rows, vocab_limit, step);
  }

 protected:
  std::unique_ptr<Backend> inner_;
};

}  // namespace adder
