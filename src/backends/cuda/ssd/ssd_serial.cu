// The Mamba-2 scan for any shape: a warp walks one element of one head of one sequence, its lanes
// sharing the states, which stay in the slot itself.
#include "backends/cuda/ssd/ssd_kernels.h"
#include "backends/cuda/ssd/ssd_params.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kWarps = 4;

template <typename T>
__global__ void ssd_serial_kernel(SsdParams<T> p) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t element = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  const int64_t h = blockIdx.y;
  const auto [begin, length, slot] = ssd_sequence(p, blockIdx.z);
  if (element >= p.headdim) return;
  T* out = p.out + h * p.out_head + element;
  if (slot < 0) {
    for (int64_t t = begin + lane; t < begin + length; t += kWarpSize)
      out[t * p.out_row] = from_float<T>(0);
    return;
  }
  float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + element * p.state_p;
  const int64_t group = h / p.heads_per_group;
  const float A_log2e = p.A_log2e[h], skip = ssd_skip(p, h, element);
  for (int64_t t = begin; t < begin + length; ++t) {
    const float dt = ssd_dt(p, t, h), decay = ex2(dt * A_log2e);
    const float x = to_float(p.x[t * p.x_row + h * p.x_head + element]);
    const T* B = p.B + t * p.B_row + group * p.B_group;
    const T* C = p.C + t * p.C_row + group * p.C_group;
    float y = 0;
    for (int64_t n = lane; n < p.d_state; n += kWarpSize) {
      state[n] = fmaf(decay, state[n], dt * x * to_float(B[n]));
      y = fmaf(to_float(C[n]), state[n], y);
    }
    y = fmaf(skip, x, warp_sum(y));
    if (lane == 0) out[t * p.out_row] = from_float<T>(ssd_gated(p, t, h, element, y));
  }
}

template <typename T>
void run(CudaContext& context, const SsdScanArgs& a) {
  const SsdParams<T> params = ssd_params<T>(context, a);
  launch(context.device, ssd_serial_kernel<T>,
         {blocks(ceil_div(params.headdim, kWarps), params.n_heads, params.batch.n_seqs),
          dim3(kWarpSize, kWarps)},
         params);
}

}  // namespace

void ssd_serial(CudaContext& context, const SsdScanArgs& a) {
  a.x.dtype == DType::kBF16 ? run<Bf16>(context, a) : run<float>(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
