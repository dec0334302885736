#include "backends/cuda/matmul/packed_blocks.h"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {
namespace {

// Rows of `width` elements, `stride` apart in device memory; a single axis, such as a bias, is one
// row.
Tensor import_rows(CudaContext& context, const Tensor& host, int64_t rows, int64_t width,
                   int64_t stride, Buffer* owner) {
  const size_t bytes = row_bytes(host.dtype, width), step = row_bytes(host.dtype, stride);
  *owner = context.device.allocate(static_cast<size_t>(rows) * step);
  auto* to = static_cast<std::byte*>(owner->data());
  if (host.is_contiguous() && bytes == step) {
    context.device.upload(to, host.bytes(), static_cast<size_t>(rows) * bytes);
  } else {
    for (int64_t row = 0; row < rows; ++row)
      context.device.upload(to + static_cast<size_t>(row) * step, host.bytes(row * host.stride[0]),
                            bytes);
  }
  Tensor weight = host;
  weight.data = to;
  weight.offset = 0;
  if (host.rank > 1) weight.stride[0] = stride;
  return weight;
}

}  // namespace

Tensor import_weight(CudaContext& context, const Tensor& host, WeightUse use, Buffer* owner) {
  const int64_t rows = host.rank == 1 ? 1 : host.dim(0);
  const int64_t width = rows == 0 ? 0 : host.size() / rows;
  if (use == WeightUse::kRows || host.rank != 2)
    return import_rows(context, host, rows, width, width, owner);
  if (is_quantized(host.dtype)) return pack_blocks(context, host, owner);
  // Whole groups, so that the kernels read units of 16 bytes; allocate() has zeroed what is added.
  Tensor weight =
      import_rows(context, host, rows, width, (width + kGroup - 1) / kGroup * kGroup, owner);
  weight.layout = TensorLayout::kPacked;
  return weight;
}

Tensor matmul_view(const Tensor& rows) {
  if (rows.rank != 2 || is_quantized(rows.dtype) || !rows.is_contiguous() ||
      rows.dim(1) % kGroup != 0)
    return {};
  Tensor weight = rows;
  weight.layout = TensorLayout::kPacked;
  return weight;
}

}  // namespace adder::ADDER_CUDA_NS
