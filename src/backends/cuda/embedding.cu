// Looking up rows: one thread block per row.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128;

struct RowsParams {
  const void* table;
  DType dtype;
  const int32_t* rows;
  float* out;
  int64_t table_stride, out_stride, width;
};

__global__ void rows_kernel(RowsParams p) {
  const int64_t from = p.rows[blockIdx.x] * p.table_stride;
  float* out = p.out + blockIdx.x * p.out_stride;
  for (int64_t j = threadIdx.x; j < p.width; j += kThreads) {
    if (p.dtype == DType::kF32)
      out[j] = static_cast<const float*>(p.table)[from + j];
    else if (p.dtype == DType::kF16)
      out[j] = f16_to_f32(static_cast<const uint16_t*>(p.table)[from + j]);
    else
      out[j] = bf16_to_f32(static_cast<const uint16_t*>(p.table)[from + j]);
  }
}

void look_up(CudaContext& context, const Tensor& table, std::span<const int32_t> rows,
             const Tensor& out) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n == 0) return;
  const auto* indices = static_cast<const int32_t*>(context.upload(rows.data(), rows.size_bytes()));
  launch(context.device, rows_kernel, {blocks(n), dim3(kThreads)},
         RowsParams{table.bytes(), table.dtype, indices, out.ptr<float>(), table.stride[0],
                    out.stride[0], table.dim(1)});
}

}  // namespace

void embedding(CudaContext& context, const EmbeddingArgs& a) {
  look_up(context, a.weight, a.ids, a.out);
}

void gather_rows(CudaContext& context, const Tensor& x, std::span<const int32_t> rows,
                 const Tensor& out) {
  look_up(context, x, rows, out);
}

}  // namespace adder::ADDER_CUDA_NS
