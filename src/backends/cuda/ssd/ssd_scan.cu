// Which kernels a scan takes: by its shape, and rows by their place in their sequence.
#include "backends/cuda/ops.h"
#include "backends/cuda/ssd/ssd_fused.cuh"
#include "backends/cuda/ssd/ssd_vectors.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

template <typename T>
void fused(CudaContext& context, const SsdScanArgs& a) {
  const SsdParams<T> p = ssd_params<T>(context, a);
  const bool wide = p.d_state == 128;
  const size_t decays = static_cast<size_t>(p.n_heads * p.batch.n_tokens) * sizeof(SsdDecay);
  const size_t chunk = wide ? sizeof(GroupChunk<T, 128>) : sizeof(GroupChunk<T, 64>);
  auto* scratch = static_cast<std::byte*>(
      context.scratch(decays + static_cast<size_t>(chunk_slots(p.batch) * p.n_groups) * chunk));
  const FusedParams<T> q{p,
                         reinterpret_cast<SsdDecay*>(scratch),
                         scratch + decays,
                         aligned16(p.x, {p.x_row, p.x_head}),
                         aligned_to(2 * sizeof(T), p.z, {p.z_row, p.z_head}),
                         aligned_to(2 * sizeof(T), p.out, {p.out_row, p.out_head})};
  wide ? launch_prepare<T, 128>(context, q) : launch_prepare<T, 64>(context, q);
  wide ? launch_fused<T, 128>(context, q) : launch_fused<T, 64>(context, q);
}

}  // namespace

bool ssd_fused_takes(const SsdScanArgs& a) {
  return a.x.dim(2) % 64 == 0 && ssd_step_takes(a);
}

void ssd_fused(CudaContext& context, const SsdScanArgs& a) {
  bool chunks = false, tails = false;
  for (int64_t i = 0; i < a.batch.n_seqs(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t length = a.batch.seq_start[at + 1] - a.batch.seq_start[at];
    chunks |= ssd_chunked_rows(length) > 0;
    tails |= ssd_chunked_rows(length) < length;
  }
  if (chunks) a.x.dtype == DType::kBF16 ? fused<Bf16>(context, a) : fused<float>(context, a);
  if (tails) ssd_step_tails(context, a);
}

void ssd_scan(CudaContext& context, const SsdScanArgs& a) {
  ssd_fused_takes(a) ? ssd_fused(context, a) : ssd_serial(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
