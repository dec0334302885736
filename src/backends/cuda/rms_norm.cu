// One thread block per row, or per group of a row. A row is summed in the same order whatever its
// address: thread i takes elements i, i + 256, ...
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 256;

struct NormShared {
  float partial[kThreads / kWarpSize];
};

struct RmsNormParams {
  const float* x;
  float* residual;
  const float* weight;
  float* out;
  int64_t x_stride, residual_stride, out_stride, dim;
  float eps;
};

__global__ void rms_norm_kernel(RmsNormParams p) {
  const int64_t row = blockIdx.x;
  const float* x = p.x + row * p.x_stride;
  float* residual = p.residual == nullptr ? nullptr : p.residual + row * p.residual_stride;
  float* out = p.out + row * p.out_stride;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < p.dim; j += kThreads) {
    float v = x[j];
    if (residual != nullptr) residual[j] = v = residual[j] + v;
    sum = fmaf(v, v, sum);
  }
  sum = block_sum(sum, shared_memory<NormShared>().partial);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.dim) + p.eps);
  for (int64_t j = threadIdx.x; j < p.dim; j += kThreads) {
    const float v = residual != nullptr ? residual[j] : x[j];
    out[j] = (p.weight == nullptr ? 1.0f : p.weight[j]) * (v * scale);
  }
}

struct GatedRmsNormParams {
  const float *x, *z, *weight;
  float* out;
  int64_t x_stride, z_stride, out_stride, width;  // of a group
  float eps;
  bool norm_before_gate;
};

__global__ void gated_rms_norm_kernel(GatedRmsNormParams p) {
  const int64_t row = blockIdx.x, begin = blockIdx.y * p.width;
  const float* x = p.x + row * p.x_stride + begin;
  const float* z = p.z + row * p.z_stride + begin;
  const float* weight = p.weight + begin;
  float* out = p.out + row * p.out_stride + begin;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < p.width; j += kThreads) {
    const float v = p.norm_before_gate ? x[j] : x[j] * silu(z[j]);
    sum = fmaf(v, v, sum);
  }
  sum = block_sum(sum, shared_memory<NormShared>().partial);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.width) + p.eps);
  for (int64_t j = threadIdx.x; j < p.width; j += kThreads) {
    const float gate = silu(z[j]);
    out[j] =
        p.norm_before_gate ? weight[j] * (x[j] * scale) * gate : weight[j] * (x[j] * gate * scale);
  }
}

}  // namespace

void rms_norm(CudaContext& context, const RmsNormArgs& a) {
  if (a.x.size() == 0) return;
  launch(context.device, rms_norm_kernel, {blocks(a.x.dim(0)), dim3(kThreads), sizeof(NormShared)},
         RmsNormParams{a.x.ptr<const float>(), a.residual ? a.residual.ptr<float>() : nullptr,
                       a.weight ? a.weight.ptr<const float>() : nullptr, a.out.ptr<float>(),
                       a.x.stride[0], a.residual.stride[0], a.out.stride[0], a.x.dim(1), a.eps});
}

void gated_rms_norm(CudaContext& context, const GatedRmsNormArgs& a) {
  if (a.x.size() == 0) return;
  launch(context.device, gated_rms_norm_kernel,
         {blocks(a.x.dim(0), a.groups), dim3(kThreads), sizeof(NormShared)},
         GatedRmsNormParams{a.x.ptr<const float>(), a.z.ptr<const float>(),
                            a.weight.ptr<const float>(), a.out.ptr<float>(), a.x.stride[0],
                            a.z.stride[0], a.out.stride[0], a.x.dim(1) / a.groups, a.eps,
                            a.norm_before_gate});
}

}  // namespace adder::ADDER_CUDA_NS
