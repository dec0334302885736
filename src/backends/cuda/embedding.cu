// Looking up rows: one thread block per row.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops.h"
#include "core/quant_blocks.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128;

struct RowsParams {
  const void* table;
  DType dtype;
  const int32_t* rows;
  float* out;
  int64_t table_row_bytes, out_stride, width;
};

// Element k of a row of a block format as it lies in the file (core/quant.h); the bits are those of
// dequantize_row, where only the subtraction of Q4_K and Q5_K rounds. Rows have no alignment.
__device__ float block_element(DType type, const uint8_t* row, int64_t k) {
  const BlockShape shape = block_shape(type);
  const uint8_t* b = row + k / shape.elements * static_cast<int64_t>(shape.bytes);
  const auto e = static_cast<int>(k % shape.elements);
  const auto half = [b](int at) {
    return half_to_float(static_cast<uint32_t>(b[at]) | static_cast<uint32_t>(b[at + 1]) << 8);
  };
  if (type == DType::kQ8_0) return half(0) * static_cast<float>(static_cast<int8_t>(b[2 + e]));
  if (type == DType::kQ4_0)
    return half(0) * static_cast<float>((b[2 + e % 16] >> e / 16 * 4 & 15) - 8);
  const int j = e / 32;  // of the eight blocks of 32
  if (type == DType::kQ6_K) {
    const int low = b[j / 4 * 64 + j % 2 * 32 + e % 32] >> j % 4 / 2 * 4 & 15;
    const int high = b[128 + j / 4 * 32 + e % 32] >> j % 4 * 2 & 3;
    const float scale = half(208) * static_cast<float>(static_cast<int8_t>(b[192 + e / 16]));
    return scale * static_cast<float>((low | high << 4) - 32);
  }
  const bool five = type == DType::kQ5_K;
  int q = b[(five ? 48 : 16) + j / 2 * 32 + e % 32] >> j % 2 * 4 & 15;
  if (five) q |= (b[16 + e % 32] >> j & 1) << 4;
  const auto [scale, min] = quant::k_scale_and_min(b + 4, j);
  return fmaf(half(0) * static_cast<float>(scale), static_cast<float>(q),
              -(half(2) * static_cast<float>(min)));
}

__global__ void rows_kernel(RowsParams p) {
  const auto* row = static_cast<const uint8_t*>(p.table) + p.rows[blockIdx.x] * p.table_row_bytes;
  float* out = p.out + blockIdx.x * p.out_stride;
  for (int64_t j = threadIdx.x; j < p.width; j += kThreads) {
    if (p.dtype == DType::kF32)
      out[j] = reinterpret_cast<const float*>(row)[j];
    else if (p.dtype == DType::kF16)
      out[j] = half_to_float(reinterpret_cast<const uint16_t*>(row)[j]);
    else if (p.dtype == DType::kBF16)
      out[j] = bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[j]);
    else
      out[j] = block_element(p.dtype, row, j);
  }
}

void look_up(CudaContext& context, const Tensor& table, std::span<const int32_t> rows,
             const Tensor& out) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n == 0) return;
  const auto* indices = static_cast<const int32_t*>(context.upload(rows.data(), rows.size_bytes()));
  launch(context.device, rows_kernel, {blocks(n), dim3(kThreads)},
         RowsParams{table.bytes(), table.dtype, indices, out.ptr<float>(),
                    static_cast<int64_t>(row_bytes(table.dtype, table.stride[0])), out.stride[0],
                    table.dim(1)});
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
