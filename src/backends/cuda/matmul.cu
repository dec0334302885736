// Products: one thread per output.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128;

struct MatmulParams {
  const float* x;
  const void* weight;
  DType dtype;
  const float* bias;
  float* out;
  int64_t in_features, out_features, x_row, weight_row, out_row;
};

__device__ __forceinline__ float weight_at(const MatmulParams& p, int64_t i) {
  if (p.dtype == DType::kF32) return static_cast<const float*>(p.weight)[i];
  const uint16_t bits = static_cast<const uint16_t*>(p.weight)[i];
  return p.dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

__global__ void matmul_kernel(MatmulParams p) {
  const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = blockIdx.y;
  if (n >= p.out_features) return;
  float sum = 0;
  for (int64_t k = 0; k < p.in_features; ++k)
    sum = fmaf(p.x[t * p.x_row + k], weight_at(p, n * p.weight_row + k), sum);
  p.out[t * p.out_row + n] = sum + (p.bias == nullptr ? 0.0f : p.bias[n]);
}

}  // namespace

void matmul(CudaContext& context, const MatmulArgs& a) {
  if (a.out.size() == 0) return;
  launch(context.device, matmul_kernel,
         {blocks(ceil_div(a.out.dim(1), kThreads), a.out.dim(0)), dim3(kThreads)},
         MatmulParams{a.x.ptr<const float>(), a.weight.bytes(), a.weight.dtype,
                      a.bias ? a.bias.ptr<const float>() : nullptr, a.out.ptr<float>(), a.x.dim(1),
                      a.out.dim(1), a.x.stride[0], a.weight.stride[0], a.out.stride[0]});
}

}  // namespace adder::ADDER_CUDA_NS
