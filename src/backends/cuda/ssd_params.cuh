// The operands of the Mamba-2 scan as its kernels take them.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "kernels/ssd_scan.h"

namespace adder::ADDER_CUDA_NS {

struct SsdParams {
  const float *x, *dt, *A_log2e, *B, *C;
  const float *D, *z, *dt_bias;  // null: not given
  float *ssm_state, *out;
  DeviceBatch batch;
  int64_t n_heads, headdim, d_state, heads_per_group;
  // Distances in elements; the inner axis has unit stride everywhere.
  int64_t x_row, x_head, dt_row, B_row, B_group, C_row, C_group, z_row, z_head, out_row, out_head;
  int64_t state_slot, state_head, state_p;
  int64_t D_head;
  bool D_per_element, dt_softplus;
  float dt_min, dt_max;
};

inline SsdParams ssd_params(CudaContext& context, const SsdScanArgs& a) {
  const auto optional = [](const Tensor& t) { return t ? t.ptr<const float>() : nullptr; };
  const int64_t n_heads = a.x.dim(1);
  return {a.x.ptr<const float>(),
          a.dt.ptr<const float>(),
          a.A_log2e.ptr<const float>(),
          a.B.ptr<const float>(),
          a.C.ptr<const float>(),
          optional(a.D),
          optional(a.z),
          optional(a.dt_bias),
          a.ssm_state.ptr<float>(),
          a.out.ptr<float>(),
          context.upload(a.batch),
          n_heads,
          a.x.dim(2),
          a.B.dim(2),
          n_heads / a.B.dim(1),
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
__device__ __forceinline__ float ssd_dt(const SsdParams& p, int64_t t, int64_t h) {
  float dt = p.dt[t * p.dt_row + h] + (p.dt_bias == nullptr ? 0.0f : p.dt_bias[h]);
  if (p.dt_softplus) dt = softplus(dt);
  return dt < p.dt_min ? p.dt_min : dt > p.dt_max ? p.dt_max : dt;
}

// D of an element: one per head, or one of its own.
__device__ __forceinline__ float ssd_skip(const SsdParams& p, int64_t h, int64_t element) {
  if (p.D == nullptr) return 0;
  return p.D[h * p.D_head + (p.D_per_element ? element : 0)];
}

}  // namespace adder::ADDER_CUDA_NS
