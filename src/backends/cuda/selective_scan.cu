// The Mamba-1 scan for any shape: a thread walks one channel of one sequence, its states in the
// slot itself.
#include "backends/cuda/ops.h"
#include "backends/cuda/scan_params.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 64;

__global__ void scan_kernel(ScanParams p) {
  const int64_t d = int64_t{blockIdx.x} * kThreads + threadIdx.x, sequence = blockIdx.y;
  if (d >= p.d_inner) return;
  const int64_t begin = p.batch.seq_start[sequence], end = p.batch.seq_start[sequence + 1];
  const int64_t slot = p.batch.state_slot[sequence];
  if (slot < 0) {
    for (int64_t t = begin; t < end; ++t) p.out[t * p.out_row + d] = 0;
    return;
  }
  float* h = p.ssm_state + slot * p.state_slot + d;
  const int64_t group = d / p.channels_per_group;
  const float bias = p.delta_bias == nullptr ? 0.0f : p.delta_bias[d];
  const float skip = p.D == nullptr ? 0.0f : p.D[d];
  for (int64_t t = begin; t < end; ++t) {
    const float u = p.u[t * p.u_row + d];
    const float dt = scan_dt(p, p.delta[t * p.delta_row + d], bias);
    const float* B = p.B + t * p.B_row + group * p.B_group;
    const float* C = p.C + t * p.C_row + group * p.C_group;
    float y = skip * u;
    for (int64_t n = 0; n < p.d_state; ++n) {
      float& state = h[n * p.state_row];
      state = fmaf(ex2(dt * p.A_log2e[n * p.A_row + d]), state, dt * u * B[n]);
      y = fmaf(C[n], state, y);
    }
    p.out[t * p.out_row + d] = p.z == nullptr ? y : y * silu(p.z[t * p.z_row + d]);
  }
}

}  // namespace

void selective_scan(CudaContext& context, const SelectiveScanArgs& a) {
  const ScanParams params = scan_params(context, a);
  launch(context.device, scan_kernel,
         {blocks(ceil_div(params.d_inner, kThreads), params.batch.n_seqs), dim3(kThreads)}, params);
}

}  // namespace adder::ADDER_CUDA_NS
