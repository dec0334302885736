#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {

Tensor import_weight(CudaContext& context, const Tensor& host, Buffer* owner) {
  // A single axis, such as a bias, is a single row.
  const int64_t rows = host.rank == 1 ? 1 : host.dim(0);
  const int64_t width = rows == 0 ? 0 : host.size() / rows;
  const size_t bytes = row_bytes(host.dtype, width);
  *owner = context.device.allocate(static_cast<size_t>(rows) * bytes);
  auto* to = static_cast<std::byte*>(owner->data());
  if (host.is_contiguous()) {
    context.device.upload(to, host.bytes(), static_cast<size_t>(rows) * bytes);
  } else {
    for (int64_t row = 0; row < rows; ++row)
      context.device.upload(to + static_cast<size_t>(row) * bytes, host.bytes(row * host.stride[0]),
                            bytes);
  }
  Tensor weight = host;
  weight.data = to;
  weight.offset = 0;
  if (host.rank > 1) weight.stride[0] = width;
  return weight;
}

}  // namespace adder::ADDER_CUDA_NS
