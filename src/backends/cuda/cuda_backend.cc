#include "backends/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "backends/cuda/ops.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder::ADDER_CUDA_NS {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device_index) : index_(device_index), context_(device_index) {}

  std::string_view name() const override { return "cuda"; }
  std::string description() const override {
    const DeviceInfo& info = context_.device.info();
    return fmt::format("cuda:{}, {}, sm_{}{}, {} multiprocessors", index_, info.name, info.major,
                       info.minor, info.multiprocessors);
  }

  Buffer allocate(size_t bytes) override { return context_.device.allocate(bytes); }
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override {
    return ADDER_CUDA_NS::import_weight(context_, host, use, owner);
  }

  Tensor matmul_view(const Tensor& rows) override { return ADDER_CUDA_NS::matmul_view(rows); }

  void read(const Tensor& tensor, std::span<std::byte> host) override {
    check_copy("read", tensor, host.size());
    context_.device.download(host.data(), tensor.bytes(), host.size());
  }
  void write(const Tensor& tensor, std::span<const std::byte> host) override {
    check_copy("write", tensor, host.size());
    context_.device.upload(tensor.bytes(), host.data(), host.size());
  }

  void synchronize() override { context_.device.synchronize(); }

  void embedding(const EmbeddingArgs& args) override {
    check(args);
    ADDER_CUDA_NS::embedding(context_, args);
  }
  void rms_norm(const RmsNormArgs& args) override {
    check(args);
    ADDER_CUDA_NS::rms_norm(context_, args);
  }
  void gated_rms_norm(const GatedRmsNormArgs& args) override {
    check(args);
    ADDER_CUDA_NS::gated_rms_norm(context_, args);
  }
  void matmul(const MatmulArgs& args) override {
    check(args);
    ADDER_CHECK(args.weight.layout == TensorLayout::kPacked,
                "matmul: weight: expected one from import_weight, got strided {}",
                args.weight.describe());
    ADDER_CUDA_NS::matmul(context_, args);
  }
  void causal_conv1d(const CausalConv1dArgs& args) override {
    check(args);
    ADDER_CUDA_NS::causal_conv1d(context_, args);
  }
  void selective_scan(const SelectiveScanArgs& args) override {
    check(args);
    ADDER_CUDA_NS::selective_scan(context_, args);
  }
  void ssd_scan(const SsdScanArgs& args) override {
    check(args);
    ADDER_CUDA_NS::ssd_scan(context_, args);
  }
  void conv_ssd_norm(const ConvSsdNormArgs& args) override {
    if (!conv_ssd_norm_takes(args)) return Backend::conv_ssd_norm(args);
    check(args.conv);
    check(args.scan);
    if (args.norm) check(*args.norm);
    ADDER_CUDA_NS::conv_ssd_norm(context_, args);
  }
  void sample(const SampleArgs& args) override {
    check(args);
    ADDER_CUDA_NS::sample(context_, args);
  }
  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override {
    check_gather_rows(x, rows, out);
    ADDER_CUDA_NS::gather_rows(context_, x, rows, out);
  }

  void state_zero(const Tensor& state, int32_t slot) override {
    check_state_slot(state, slot);
    const Tensor entry = state.select(slot);
    context_.device.zero(entry.bytes(), bytes_of(entry));
  }
  void state_copy(const Tensor& state, int32_t from, int32_t to) override {
    check_state_slot(state, from);
    check_state_slot(state, to);
    if (from == to) return;
    const Tensor entry = state.select(from);
    context_.device.copy(state.select(to).bytes(), entry.bytes(), bytes_of(entry));
  }

  std::unique_ptr<DecodeLoop> make_decode_loop(int64_t rows, int64_t vocab_limit,
                                               const DecodeStep& step) override {
    return ADDER_CUDA_NS::make_decode_loop(context_, rows, vocab_limit, step);
  }

 private:
  static size_t bytes_of(const Tensor& tensor) { return row_bytes(tensor.dtype, tensor.size()); }

  int index_;
  CudaContext context_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(int device_index) {
  return std::make_unique<CudaBackend>(device_index);
}

}  // namespace adder::ADDER_CUDA_NS
