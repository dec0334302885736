#include "backends/ref/ref_backend.h"

#include <algorithm>

#include "backends/ref/ref_ops.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder {
namespace {

// The bytes of a contiguous tensor in host memory.
std::span<std::byte> bytes_of(const Tensor& t) {
  return {t.bytes(), row_bytes(t.dtype, t.size())};
}

}  // namespace

Buffer RefBackend::allocate(size_t bytes) {
  return allocate_host(bytes);
}

Tensor RefBackend::import_weight(const Tensor& host, WeightUse /*use*/, Buffer* /*owner*/) {
  return host;
}

void RefBackend::read(const Tensor& tensor, std::span<std::byte> host) {
  check_copy("read", tensor, host.size());
  std::ranges::copy(bytes_of(tensor), host.begin());
}

void RefBackend::write(const Tensor& tensor, std::span<const std::byte> host) {
  check_copy("write", tensor, host.size());
  std::ranges::copy(host, bytes_of(tensor).begin());
}

void RefBackend::embedding(const EmbeddingArgs& args) {
  check(args);
  ref::embedding(args);
}

void RefBackend::rms_norm(const RmsNormArgs& args) {
  check(args);
  ref::rms_norm(args);
}

void RefBackend::gated_rms_norm(const GatedRmsNormArgs& args) {
  check(args);
  ref::gated_rms_norm(args);
}

void RefBackend::matmul(const MatmulArgs& args) {
  check(args);
  ref::matmul(args);
}

void RefBackend::causal_conv1d(const CausalConv1dArgs& args) {
  check(args);
  ref::causal_conv1d(args);
}

void RefBackend::selective_scan(const SelectiveScanArgs& args) {
  check(args);
  ref::selective_scan(args);
}

void RefBackend::ssd_scan(const SsdScanArgs& args) {
  check(args);
  ref::ssd_scan(args);
}

void RefBackend::sample(const SampleArgs& args) {
  check(args);
  ref::sample(args);
}

void RefBackend::gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) {
  check_gather_rows(x, rows, out);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(ref::at(x, rows[i]), x.dim(1), ref::at(out, static_cast<int64_t>(i)));
}

void RefBackend::state_zero(const Tensor& state, int32_t slot) {
  check_state_slot(state, slot);
  std::ranges::fill(bytes_of(state.select(slot)), std::byte{0});
}

void RefBackend::state_copy(const Tensor& state, int32_t from, int32_t to) {
  check_state_slot(state, from);
  check_state_slot(state, to);
  if (from == to) return;
  std::ranges::copy(bytes_of(state.select(from)), bytes_of(state.select(to)).begin());
}

}  // namespace adder
