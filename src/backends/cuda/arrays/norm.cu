// A block has one group of one row. What is summed is read again rather than kept: a group may be
// of any size, and its row lies in the cache.
#include <algorithm>

#include "backends/cuda/arrays/array_ops.h"
#include "backends/cuda/arrays/numbers.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int64_t kMostThreads = 256;

struct NormShared {
  float partial[kMostThreads / kWarpSize];
};

struct NormParams {
  NormArrays a;
  int64_t groups, width;  // of a row; of a group
};

// Where row `index` of an array begins, counted over its first `axes` axes.
__device__ __forceinline__ std::byte* row_of(const ArrayView& x, int64_t index, int axes) {
  std::byte* row = x.data;
  if (!x.given) return row;
  for (int axis = axes - 1; axis >= 0; --axis) {
    const int64_t size = x.dim(axis);
    row += index % size * x.step(axis);
    index /= size;
  }
  return row;
}

__device__ __forceinline__ float entry(const ArrayView& x, const std::byte* row, int64_t j) {
  return load_number(row + j * x.step(x.rank - 1), x.dtype);
}

__global__ void norm_kernel(NormParams p) {
  const NormArrays& a = p.a;
  const int axes = a.x.rank - 1;
  const int64_t index = blockIdx.x / p.groups;
  const int64_t first = static_cast<int64_t>(blockIdx.x % p.groups) * p.width;
  const std::byte *x = row_of(a.x, index, axes), *x1 = row_of(a.x1, index, axes),
                  *residual = row_of(a.residual, index, axes), *z = row_of(a.z, index, axes);
  std::byte *out = row_of(a.out, index, axes), *out1 = row_of(a.out1, index, axes),
            *residual_out = row_of(a.residual_out, index, axes);
  const float rowscale =
      a.rowscale.given ? load_number(row_of(a.rowscale, index, axes), a.rowscale.dtype) : 1.0f;
  const auto sum_at = [&](int64_t j) {
    float v = entry(a.x, x, j);
    if (a.rowscale.given) v *= rowscale;
    if (a.x1.given) v += entry(a.x1, x1, j);
    if (a.residual.given) v += entry(a.residual, residual, j);
    return v;
  };
  const auto value_at = [&](int64_t j) {
    const float v = sum_at(j);
    return a.z.given && !a.norm_before_gate ? v * silu(entry(a.z, z, j)) : v;
  };
  float* scratch = shared_memory<NormShared>().partial;
  const int64_t end = first + p.width;
  const auto size = static_cast<float>(p.width);
  float mean = 0;
  if (!a.rms) {
    float sum = 0;
    for (int64_t j = first + threadIdx.x; j < end; j += blockDim.x) sum += value_at(j);
    mean = block_sum(sum, scratch) / size;
    __syncthreads();
  }
  float squares = 0;
  for (int64_t j = first + threadIdx.x; j < end; j += blockDim.x) {
    const float v = value_at(j) - mean;
    squares = fmaf(v, v, squares);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / size + a.eps);
  for (int64_t j = first + threadIdx.x; j < end; j += blockDim.x) {
    const float v = (value_at(j) - mean) * scale;
    const float gate = a.z.given && a.norm_before_gate ? silu(entry(a.z, z, j)) : 1.0f;
    const auto affine = [&](const ArrayView& weight, const ArrayView& bias) {
      return (v * number(weight, j) + number_or_zero(bias, j)) * gate;
    };
    if (a.residual_out.given)
      store_number(sum_at(j), residual_out + j * a.residual_out.step(axes), a.residual_out.dtype);
    store_number(affine(a.weight, a.bias), out + j * a.out.step(axes), a.out.dtype);
    if (a.out1.given)
      store_number(affine(a.weight1, a.bias1), out1 + j * a.out1.step(axes), a.out1.dtype);
  }
}

}  // namespace

void norm(CudaContext& context, const NormArrays& a) {
  const int64_t dim = a.x.dim(a.x.rank - 1), width = a.group_size == 0 ? dim : a.group_size;
  if (a.x.size() == 0) return;
  // Whole warps, and no more than a small group can use.
  const int64_t threads = std::min(kMostThreads, ceil_div(width, kWarpSize) * kWarpSize);
  launch(context.device, norm_kernel,
         {blocks(a.x.size() / width), dim3(static_cast<unsigned>(threads)), sizeof(NormShared)},
         NormParams{a, dim / width, width});
}

}  // namespace adder::ADDER_CUDA_NS
