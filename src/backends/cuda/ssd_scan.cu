// The Mamba-2 scan for any shape: a warp walks one element of one head of one sequence, its lanes
// sharing the states, which stay in the slot itself.
#include "backends/cuda/ops.h"
#include "backends/cuda/ssd_params.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kWarps = 4;

__global__ void ssd_kernel(SsdParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t element = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  const int64_t h = blockIdx.y, sequence = blockIdx.z;
  if (element >= p.headdim) return;
  const int64_t begin = p.batch.seq_start[sequence], end = p.batch.seq_start[sequence + 1];
  const int64_t slot = p.batch.state_slot[sequence];
  float* out = p.out + h * p.out_head + element;
  if (slot < 0) {
    if (lane == 0)
      for (int64_t t = begin; t < end; ++t) out[t * p.out_row] = 0;
    return;
  }
  float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + element * p.state_p;
  const int64_t group = h / p.heads_per_group;
  const float A_log2e = p.A_log2e[h], skip = ssd_skip(p, h, element);
  for (int64_t t = begin; t < end; ++t) {
    const float dt = ssd_dt(p, t, h), decay = ex2(dt * A_log2e);
    const float x = p.x[t * p.x_row + h * p.x_head + element];
    const float* B = p.B + t * p.B_row + group * p.B_group;
    const float* C = p.C + t * p.C_row + group * p.C_group;
    float y = 0;
    for (int64_t n = lane; n < p.d_state; n += kWarpSize) {
      state[n] = fmaf(decay, state[n], dt * x * B[n]);
      y = fmaf(C[n], state[n], y);
    }
    y = fmaf(skip, x, warp_sum(y));
    if (lane != 0) continue;
    out[t * p.out_row] = p.z == nullptr ? y : y * silu(p.z[t * p.z_row + h * p.z_head + element]);
  }
}

}  // namespace

void ssd_scan(CudaContext& context, const SsdScanArgs& a) {
  const SsdParams params = ssd_params(context, a);
  launch(context.device, ssd_kernel,
         {blocks(ceil_div(params.headdim, kWarps), params.n_heads, params.batch.n_seqs),
          dim3(kWarpSize, kWarps)},
         params);
}

}  // namespace adder::ADDER_CUDA_NS
