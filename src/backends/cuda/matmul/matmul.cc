#include "backends/cuda/matmul/products.h"
#include "backends/cuda/ops.h"

namespace adder::ADDER_CUDA_NS {

void matmul(CudaContext& context, const MatmulArgs& a) {
  if (a.out.size() == 0) return;
  if (is_quantized(a.weight.dtype))
    block_matmul(context, a);
  else
    float_matmul(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
