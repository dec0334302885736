// The operands of the Mamba-1 scan as its kernels take them, and the step that all of them make.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "kernels/selective_scan.h"

namespace adder::ADDER_CUDA_NS {

struct ScanParams {
  const float *u, *delta, *A_log2e, *B, *C;
  const float *D, *z, *delta_bias;  // null: not given
  float *ssm_state, *out;
  DeviceBatch batch;
  int64_t d_inner, d_state, channels_per_group;
  // Distances in elements: of rows, of groups within a row, of slots and of states within a slot.
  int64_t u_row, delta_row, A_row, B_row, B_group, C_row, C_group, z_row, out_row;
  int64_t state_slot, state_row;
  bool delta_softplus;
};

inline ScanParams scan_params(CudaContext& context, const SelectiveScanArgs& a) {
  const auto optional = [](const Tensor& t) { return t ? t.ptr<const float>() : nullptr; };
  const int64_t d_inner = a.u.dim(1);
  return {a.u.ptr<const float>(),
          a.delta.ptr<const float>(),
          a.A_log2e.ptr<const float>(),
          a.B.ptr<const float>(),
          a.C.ptr<const float>(),
          optional(a.D),
          optional(a.z),
          optional(a.delta_bias),
          a.ssm_state.ptr<float>(),
          a.out.ptr<float>(),
          context.upload(a.batch),
          d_inner,
          a.B.dim(2),
          d_inner / a.B.dim(1),
          a.u.stride[0],
          a.delta.stride[0],
          a.A_log2e.stride[0],
          a.B.stride[0],
          a.B.stride[1],
          a.C.stride[0],
          a.C.stride[1],
          a.z.stride[0],
          a.out.stride[0],
          a.ssm_state.stride[0],
          a.ssm_state.stride[1],
          a.delta_softplus};
}

__device__ __forceinline__ float scan_dt(const ScanParams& p, float delta, float bias) {
  const float dt = delta + bias;
  return p.delta_softplus ? softplus(dt) : dt;
}

}  // namespace adder::ADDER_CUDA_NS
