// Rung (a), and the kernel for shapes that no other takes: a thread walks one channel of one
// sequence token by token, its states in the slot itself. Every state is read and written in memory
// for every token.
#include "backends/cuda/scan/scan_kernels.h"
#include "backends/cuda/scan/scan_params.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 64;

template <typename T>
__global__ void naive_kernel(ScanParams<T> p) {
  const int64_t d = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (d >= p.d_inner) return;
  const ScanSequence s = scan_sequence(p, blockIdx.y);
  const int64_t end = s.begin + s.length;
  if (s.slot < 0) {
    for (int64_t t = s.begin; t < end; ++t) p.out[t * p.out_row + d] = from_float<T>(0);
    return;
  }
  float* h = p.ssm_state + s.slot * p.state_slot + d;
  const int64_t group = d / p.channels_per_group;
  const float bias = channel_or_zero(p.delta_bias, d), skip = channel_or_zero(p.D, d);
  for (int64_t t = s.begin; t < end; ++t) {
    const float u = to_float(p.u[t * p.u_row + d]);
    const float dt = scan_dt(p, to_float(p.delta[t * p.delta_row + d]), bias);
    const T* B = p.B + t * p.B_row + group * p.B_group;
    const T* C = p.C + t * p.C_row + group * p.C_group;
    float y = 0;
    for (int64_t n = 0; n < p.d_state; ++n) {
      float& state = h[n * p.state_row];
      state = fmaf(ex2(dt * p.A_log2e[n * p.A_row + d]), state, dt * u * to_float(B[n]));
      y = fmaf(to_float(C[n]), state, y);
    }
    const float z = p.z == nullptr ? 0.0f : to_float(p.z[t * p.z_row + d]);
    p.out[t * p.out_row + d] = scan_output<T>(y, skip, u, p.z != nullptr, z);
  }
}

template <typename T>
void run(CudaContext& context, const SelectiveScanArgs& a) {
  const auto params = scan_params<T>(context, a);
  launch(context.device, naive_kernel<T>,
         {blocks(ceil_div(params.d_inner, kThreads), params.batch.n_seqs), dim3(kThreads)}, params);
}

}  // namespace

void scan_naive(CudaContext& context, const SelectiveScanArgs& a) {
  with_activations(a, [&](auto type) { run<decltype(type)>(context, a); });
}

}  // namespace adder::ADDER_CUDA_NS
