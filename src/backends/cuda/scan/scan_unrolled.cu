// Rung (b), and what short pieces run on: a thread has one channel and its states in registers, and
// takes a few tokens at once so that their loads and exponentials overlap.
#include "backends/cuda/scan/scan_kernels.h"
#include "backends/cuda/scan/scan_lanes.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 64, kTokens = 4;

// For d_state 16 eight blocks fit on an SM, with 128 registers; asked for nothing, the compiler
// spills to have only 72.
template <typename T, typename Lanes>
__global__ void __launch_bounds__(kThreads, Lanes::kExact ? 8 : 4)
    unrolled_kernel(ScanParams<T> p) {
  constexpr int kStates = Lanes::kStates;
  const int64_t d = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (d >= p.d_inner) return;
  const ScanSequence s = scan_sequence(p, blockIdx.y);
  const int64_t end = s.begin + s.length;
  if (s.length == 0) return;
  if (s.slot < 0) {
    for (int64_t t = s.begin; t < end; ++t) p.out[t * p.out_row + d] = from_float<T>(0);
    return;
  }
  float* h = p.ssm_state + s.slot * p.state_slot + d;
  Lanes lanes;
  lanes.load(true, 0, p.d_state, p.A_log2e + d, p.A_row, h, p.state_row);
  const int64_t group = d / p.channels_per_group;
  const float bias = channel_or_zero(p.delta_bias, d), skip = channel_or_zero(p.D, d);

  const auto step = [&]<int kCount>(int64_t t) {
    float u[kCount], z[kCount], dt[kCount], du[kCount], y[kCount];
    for (int j = 0; j < kCount; ++j) {
      u[j] = to_float(p.u[(t + j) * p.u_row + d]);
      dt[j] = to_float(p.delta[(t + j) * p.delta_row + d]);
      z[j] = p.z == nullptr ? 0.0f : to_float(p.z[(t + j) * p.z_row + d]);
    }
    for (int j = 0; j < kCount; ++j) {
      dt[j] = scan_dt(p, dt[j], bias);
      du[j] = dt[j] * u[j];
    }
    const auto rows = [&](int j, float(&B)[kStates], float(&C)[kStates]) {
      const T* B_row = p.B + (t + j) * p.B_row + group * p.B_group;
      const T* C_row = p.C + (t + j) * p.C_row + group * p.C_group;
      for (int k = 0; k < kStates; ++k) {
        const bool there = Lanes::kExact || k < lanes.present;
        B[k] = there ? to_float(B_row[k]) : 0.0f;
        C[k] = there ? to_float(C_row[k]) : 0.0f;
      }
    };
    lanes.template advance<kCount, false>(dt, du, kCount, rows, y);
    for (int j = 0; j < kCount; ++j)
      p.out[(t + j) * p.out_row + d] = scan_output<T>(y[j], skip, u[j], p.z != nullptr, z[j]);
  };
  int64_t t = s.begin;
  for (; t + kTokens <= end; t += kTokens) step.template operator()<kTokens>(t);
  for (; t < end; ++t) step.template operator()<1>(t);
  lanes.store(h, p.state_row);
}

template <typename T>
void run(CudaContext& context, const SelectiveScanArgs& a) {
  const auto params = scan_params<T>(context, a);
  const LaunchShape shape{blocks(ceil_div(params.d_inner, kThreads), params.batch.n_seqs),
                          dim3(kThreads)};
  with_unrolled_states(params.d_state, [&](auto lanes) {
    launch(context.device, unrolled_kernel<T, decltype(lanes)>, shape, params);
  });
}

}  // namespace

void scan_unrolled(CudaContext& context, const SelectiveScanArgs& a) {
  with_activations(a, [&](auto type) { run<decltype(type)>(context, a); });
}

}  // namespace adder::ADDER_CUDA_NS
