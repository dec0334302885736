// One thread block per row, or per group of a row. A row is summed in the same order whatever its
// address: thread i takes elements i, i + 256, ...
#include "backends/cuda/launch.cuh"
#include "backends/cuda/math.cuh"
#include "backends/cuda/ops.h"
#include "backends/cuda/rms_norm.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = kNormThreads;

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

__global__ void gated_rms_norm_kernel(GatedRmsNormParams p) {
  gated_rms_norm_group(p, blockIdx.x, blockIdx.y, shared_memory<NormShared>());
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
         gated_rms_norm_params(a));
}

}  // namespace adder::ADDER_CUDA_NS
