// The recurrence for few rows: one token per sequence (decode), and what a prompt has behind its
// last chunk. Its time is that of reading and writing the state once (derived, P 64 x N 128: 65536
// bytes per head, against 2 + 2 bytes of x and z per element in bfloat16).
//
// A block has kRowsPerThread * 128 / (N / 4) of a head's elements p, so a head of 64 x 128 is
// four blocks: 320 of them for mamba2-2.7b at batch 1. N / 4 lanes share an element, 16 bytes of
// its state each, so that every access of a warp is to 512 bytes in a row, and a thread has four of
// them in flight. The state is in registers while rows go by.
#include "backends/cuda/ssd/ssd_kernels.h"
#include "backends/cuda/ssd/ssd_params.cuh"
#include "backends/cuda/ssd/ssd_step.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128, kRowsPerThread = 4;

template <typename T>
struct StepParams {
  SsdParams<T> p;
  bool only_tails;              // behind the chunks of ssd_fused
  bool state_vectors, vectors;  // 16-byte accesses to the state, to B and C, are aligned
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) ssd_step_kernel(StepParams<T> q) {
  constexpr int kLanes = N / 4, kPass = kThreads / kLanes;
  const SsdParams<T>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const int64_t h = blockIdx.y, group = h / p.heads_per_group;
  const auto [begin, length, slot] = ssd_sequence(p, blockIdx.z);
  const int64_t first = begin + (q.only_tails ? ssd_chunked_rows(length) : 0);
  const int64_t end = begin + length;
  if (first >= end) return;
  int64_t element[kRowsPerThread];
  bool inside[kRowsPerThread];
  for (int r = 0; r < kRowsPerThread; ++r) {
    element[r] = (int64_t{blockIdx.x} * kRowsPerThread + r) * kPass + thread / kLanes;
    inside[r] = element[r] < p.headdim;
  }
  if (slot < 0) {
    for (int64_t t = first; t < end; ++t)
      for (int r = 0; r < kRowsPerThread; ++r)
        if (inside[r] && lane == 0)
          p.out[t * p.out_row + h * p.out_head + element[r]] = from_float<T>(0);
    return;
  }
  float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + 4 * lane;
  float4 S[kRowsPerThread];
  float skip[kRowsPerThread];
  for (int r = 0; r < kRowsPerThread; ++r) {
    S[r] = inside[r] ? load4(state + element[r] * p.state_p, q.state_vectors)
                     : make_float4(0, 0, 0, 0);
    skip[r] = inside[r] ? ssd_skip(p, h, element[r]) : 0.0f;
  }
  const float A_log2e = p.A_log2e[h];
  for (int64_t t = first; t < end; ++t) {
    const float4 B = load4(p.B + t * p.B_row + group * p.B_group + 4 * lane, q.vectors);
    const float4 C = load4(p.C + t * p.C_row + group * p.C_group + 4 * lane, q.vectors);
    const float dt = ssd_dt(p, t, h), decay = ex2(dt * A_log2e);
    for (int r = 0; r < kRowsPerThread; ++r) {
      const float x = inside[r] ? to_float(p.x[t * p.x_row + h * p.x_head + element[r]]) : 0.0f;
      const float y = ssd_advance<kLanes>(S[r], decay, dt * x, B, C);
      if (lane == 0 && inside[r])
        p.out[t * p.out_row + h * p.out_head + element[r]] =
            from_float<T>(ssd_gated(p, t, h, element[r], fmaf(skip[r], x, y)));
    }
  }
  for (int r = 0; r < kRowsPerThread; ++r)
    if (inside[r]) store4(state + element[r] * p.state_p, S[r], q.state_vectors);
}

template <typename T, int N>
void launch_step(CudaContext& context, const StepParams<T>& q) {
  constexpr int kElements = kRowsPerThread * kThreads / (N / 4);
  launch(context.device, ssd_step_kernel<T, N>,
         {blocks(ceil_div(q.p.headdim, kElements), q.p.n_heads, q.p.batch.n_seqs), dim3(kThreads)},
         q);
}

template <typename T>
void run(CudaContext& context, const SsdScanArgs& a, bool only_tails) {
  const SsdParams<T> p = ssd_params<T>(context, a);
  const StepParams<T> q{
      p, only_tails, aligned16(p.ssm_state, {p.state_slot, p.state_head, p.state_p}),
      aligned16(p.B, {p.B_row, p.B_group}) && aligned16(p.C, {p.C_row, p.C_group})};
  p.d_state == 64 ? launch_step<T, 64>(context, q) : launch_step<T, 128>(context, q);
}

}  // namespace

bool ssd_step_takes(const SsdScanArgs& a) {
  return a.B.dim(2) == 64 || a.B.dim(2) == 128;
}

void ssd_step(CudaContext& context, const SsdScanArgs& a) {
  a.x.dtype == DType::kBF16 ? run<Bf16>(context, a, false) : run<float>(context, a, false);
}

void ssd_step_tails(CudaContext& context, const SsdScanArgs& a) {
  a.x.dtype == DType::kBF16 ? run<Bf16>(context, a, true) : run<float>(context, a, true);
}

}  // namespace adder::ADDER_CUDA_NS
