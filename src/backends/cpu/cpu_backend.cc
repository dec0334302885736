#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <cstring>

#include "backends/cpu/ops.h"
#include "backends/cpu/packed_weight.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, Isa isa, bool pin) : context_(threads, isa, pin) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    const int threads = context_.pool.size();
    return fmt::format("cpu, {}, {} thread{}", context_.isa.name, threads, threads == 1 ? "" : "s");
  }

  Buffer allocate(size_t bytes) override { return allocate_host(bytes); }
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override {
    return use == WeightUse::kMatmul ? pack_weight(host, context_.pool, owner) : host;
  }

  void read(const Tensor& tensor, std::span<std::byte> host) override {
    check_copy("read", tensor, host.size());
    if (!host.empty()) std::memcpy(host.data(), tensor.bytes(), host.size());
  }
  void write(const Tensor& tensor, std::span<const std::byte> host) override {
    check_copy("write", tensor, host.size());
    if (!host.empty()) std::memcpy(tensor.bytes(), host.data(), host.size());
  }

  void synchronize() override {}

  void embedding(const EmbeddingArgs& args) override {
    check(args);
    cpu_embedding(args, context_);
  }
  void rms_norm(const RmsNormArgs& args) override {
    check(args);
    cpu_rms_norm(args, context_);
  }
  void gated_rms_norm(const GatedRmsNormArgs& args) override {
    check(args);
    cpu_gated_rms_norm(args, context_);
  }
  void matmul(const MatmulArgs& args) override {
    check(args);
    ADDER_CHECK(args.weight.layout == TensorLayout::kPacked,
                "matmul: weight: expected one from import_weight, got strided {}",
                args.weight.describe());
    cpu_matmul(args, context_);
  }
  void causal_conv1d(const CausalConv1dArgs& args) override {
    check(args);
    cpu_causal_conv1d(args, context_);
  }
  void selective_scan(const SelectiveScanArgs& args) override {
    check(args);
    cpu_selective_scan(args, context_);
  }
  void ssd_scan(const SsdScanArgs& args) override {
    check(args);
    cpu_ssd_scan(args, context_);
  }
  void sample(const SampleArgs& args) override {
    check(args);
    cpu_sample(args, context_);
  }

  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override {
    check_gather_rows(x, rows, out);
    const size_t bytes = static_cast<size_t>(x.dim(1)) * sizeof(float);
    if (bytes == 0) return;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(out.ptr<float>() + static_cast<int64_t>(i) * out.stride[0],
                  x.ptr<const float>() + rows[i] * x.stride[0], bytes);
    }
  }
  void state_zero(const Tensor& state, int32_t slot) override {
    check_state_slot(state, slot);
    const Tensor entry = state.select(slot);
    std::memset(entry.bytes(), 0, bytes_of(entry));
  }
  void state_copy(const Tensor& state, int32_t from, int32_t to) override {
    check_state_slot(state, from);
    check_state_slot(state, to);
    if (from == to) return;
    const Tensor entry = state.select(from);
    std::memcpy(state.select(to).bytes(), entry.bytes(), bytes_of(entry));
  }

 private:
  static size_t bytes_of(const Tensor& tensor) { return row_bytes(tensor.dtype, tensor.size()); }

  CpuContext context_;
};

}  // namespace

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : runnable_isas()) names.emplace_back(isa.name);
  return names;
}

std::unique_ptr<Backend> make_cpu_backend(int threads, std::string_view isa, bool pin) {
  return std::make_unique<CpuBackend>(threads,
                                      isa.empty() ? isa_from_environment() : choose_isa(isa), pin);
}

}  // namespace adder
