// The operands of the Mamba-2 scan as its kernels take them. The contract's activations are
// float32; every kernel also takes bfloat16 ones. What decides about the state (dt, A, D) and
// the state itself are float32 in either case.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "kernels/ssd_scan.h"

namespace adder::ADDER_CUDA_NS {

// T: float or Bf16.
template <typename T>
struct SsdParams {
  const T *x, *B, *C, *z;  // z null: not given
  T* out;
  const float *dt, *A_log2e;
  const float *D, *dt_bias;  // null: not given
  float* ssm_state;
  DeviceBatch batch;
  int64_t n_heads, n_groups, headdim, d_state, heads_per_group;
  // Distances in elements; the inner axis has unit stride everywhere.
  int64_t x_row, x_head, dt_row, B_row, B_group, C_row, C_group, z_row, z_head, out_row, out_head;
  int64_t state_slot, state_head, state_p;
  int64_t D_head;
  bool D_per_element, dt_softplus;
  float dt_min, dt_max;
};

template <typename T>
SsdParams<T> ssd_params(CudaContext& context, const SsdScanArgs& a) {
  const auto optional = [](const Tensor& t) { return t ? t.ptr<const float>() : nullptr; };
  const int64_t n_heads = a.x.dim(1), n_groups = a.B.dim(1);
  return {a.x.ptr<const T>(),
          a.B.ptr<const T>(),
          a.C.ptr<const T>(),
          a.z ? a.z.ptr<const T>() : nullptr,
          a.out.ptr<T>(),
          a.dt.ptr<const float>(),
          a.A_log2e.ptr<const float>(),
          optional(a.D),
          optional(a.dt_bias),
          a.ssm_state.ptr<float>(),
          context.upload(a.batch),
          n_heads,
          n_groups,
          a.x.dim(2),
          a.B.dim(2),
          n_heads / n_groups,
          a.x.stride[0],
          a.x.stride[1],
          a.dt.stride[0],
          a.B.stride[0],
          a.B.stride[1],
          a.C.stride[0],
          a.C.stride[1],
          a.z.stride[0],
          a.z.stride[1],
          a.out.stride[0],
          a.out.stride[1],
          a.ssm_state.stride[0],
          a.ssm_state.stride[1],
          a.ssm_state.stride[2],
          a.D.stride[0],
          a.D.rank == 2,
          a.dt_softplus,
          a.dt_min,
          a.dt_max};
}

// The step of head h at row t. NaN stays NaN.
template <typename T>
__device__ __forceinline__ float ssd_dt(const SsdParams<T>& p, int64_t t, int64_t h) {
  float dt = p.dt[t * p.dt_row + h] + (p.dt_bias == nullptr ? 0.0f : p.dt_bias[h]);
  if (p.dt_softplus) dt = softplus(dt);
  return dt < p.dt_min ? p.dt_min : dt > p.dt_max ? p.dt_max : dt;
}

// D of an element: one per head, or one of its own.
template <typename T>
__device__ __forceinline__ float ssd_skip(const SsdParams<T>& p, int64_t h, int64_t element) {
  if (p.D == nullptr) return 0;
  return p.D[h * p.D_head + (p.D_per_element ? element : 0)];
}

// y gated by z, if there is one.
template <typename T>
__device__ __forceinline__ float ssd_gated(const SsdParams<T>& p, int64_t t, int64_t h,
                                           int64_t element, float y) {
  if (p.z == nullptr) return y;
  return y * silu(to_float(p.z[t * p.z_row + h * p.z_head + element]));
}

// A sequence of a kernel's grid.
struct SsdSequence {
  int64_t begin, length, slot;
};
template <typename T>
__device__ __forceinline__ SsdSequence ssd_sequence(const SsdParams<T>& p, int64_t sequence) {
  const int64_t begin = p.batch.seq_start[sequence];
  return {begin, p.batch.seq_start[sequence + 1] - begin, p.batch.state_slot[sequence]};
}

}  // namespace adder::ADDER_CUDA_NS
