// The operands of the Mamba-1 scan as its kernels take them, and what every kernel does to a token
// before and after the recurrence.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "kernels/selective_scan.h"

namespace adder::ADDER_CUDA_NS {

// T: the type of activations, float or Bf16.
template <typename T>
struct ScanParams {
  const T *u, *delta, *B, *C;
  const T* z;  // null: not given, as are D and delta_bias
  const float *A_log2e, *D, *delta_bias;
  float* ssm_state;
  T* out;
  DeviceBatch batch;
  int64_t d_inner, d_state, n_groups, channels_per_group;
  // Distances in elements: of rows, of groups within a row, of slots and of states within a slot.
  int64_t u_row, delta_row, A_row, B_row, B_group, C_row, C_group, z_row, out_row;
  int64_t state_slot, state_row;
  bool delta_softplus;
};

template <typename T>
ScanParams<T> scan_params(CudaContext& context, const SelectiveScanArgs& a) {
  ScanParams<T> p{};
  p.u = a.u.ptr<const T>(), p.delta = a.delta.ptr<const T>();
  p.B = a.B.ptr<const T>(), p.C = a.C.ptr<const T>();
  p.z = a.z ? a.z.ptr<const T>() : nullptr;
  p.A_log2e = a.A_log2e.ptr<const float>();
  p.D = a.D ? a.D.ptr<const float>() : nullptr;
  p.delta_bias = a.delta_bias ? a.delta_bias.ptr<const float>() : nullptr;
  p.ssm_state = a.ssm_state.ptr<float>();
  p.out = a.out.ptr<T>();
  p.batch = context.upload(a.batch);
  p.d_inner = a.u.dim(1), p.d_state = a.B.dim(2);
  p.n_groups = a.B.dim(1), p.channels_per_group = p.d_inner / p.n_groups;
  p.u_row = a.u.stride[0], p.delta_row = a.delta.stride[0], p.A_row = a.A_log2e.stride[0];
  p.B_row = a.B.stride[0], p.B_group = a.B.stride[1];
  p.C_row = a.C.stride[0], p.C_group = a.C.stride[1];
  p.z_row = a.z.stride[0], p.out_row = a.out.stride[0];
  p.state_slot = a.ssm_state.stride[0], p.state_row = a.ssm_state.stride[1];
  p.delta_softplus = a.delta_softplus;
  return p;
}

// Calls run(T{}) with the type of the activations.
template <typename F>
void with_activations(const SelectiveScanArgs& a, F&& run) {
  a.u.dtype == DType::kBF16 ? run(Bf16{}) : run(float{});
}

template <typename T>
__device__ __forceinline__ float channel_or_zero(const T* values, int64_t d) {
  return values == nullptr ? 0.0f : to_float(values[d]);
}

// softplus and silu in 14 and 5 instructions, where log1pf, expf and a division take 60: with 16
// states of 9 each that is a third of a token. The threshold of 20 needs no test: beyond 17.4 the
// logarithm is below half a unit of v.
//
// max(v, 0) + log1p(e) with e = exp(-|v|) in [0, 1]. The polynomial is log1p(e) / e, of degree 8,
// minimax in relative error with p(0) = 1: 3.3e-8, in float32 1.4e-7.
__device__ __forceinline__ float scan_softplus(float v) {
  const float e = ex2(-kLog2e * fabsf(v));
  float p = fmaf(0.005364824552f, e, -0.03006579168f);
  p = fmaf(p, e, 0.079204536974f);
  p = fmaf(p, e, -0.13753803074f);
  p = fmaf(p, e, 0.191536545753f);
  p = fmaf(p, e, -0.24857163429f);
  p = fmaf(p, e, 0.333213239908f);
  p = fmaf(p, e, -0.49999648332f);
  p = fmaf(p, e, 1.0f);
  return fmaf(p, e, fmaxf(v, 0.0f));
}

// v / (1 + exp(-v)); far below 0 it is -0.
__device__ __forceinline__ float scan_silu(float v) {
  return v * reciprocal(1.0f + ex2(-kLog2e * v));
}

template <typename T>
__device__ __forceinline__ float scan_dt(const ScanParams<T>& p, float delta, float bias) {
  const float dt = delta + bias;
  return p.delta_softplus ? scan_softplus(dt) : dt;
}

// What the token of row t puts out, where y = sum_n C h.
template <typename T>
__device__ __forceinline__ T scan_output(float y, float skip, float u, bool gated, float z) {
  y = fmaf(skip, u, y);
  return from_float<T>(gated ? y * scan_silu(z) : y);
}

// One sequence of the batch, as a block sees it.
struct ScanSequence {
  int64_t begin, length, slot;
};
template <typename T>
__device__ __forceinline__ ScanSequence scan_sequence(const ScanParams<T>& p, int64_t i) {
  const int64_t begin = p.batch.seq_start[i];
  return {begin, p.batch.seq_start[i + 1] - begin, p.batch.state_slot[i]};
}

}  // namespace adder::ADDER_CUDA_NS
