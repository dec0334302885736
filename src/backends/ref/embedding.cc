#include "backends/ref/ref_ops.h"
#include "core/quant.h"

namespace adder::ref {

void embedding(const EmbeddingArgs& a) {
  for (size_t t = 0; t < a.ids.size(); ++t)
    dequantize_row(a.weight.dtype, a.weight.bytes(a.ids[t] * a.weight.stride[0]),
                   {at(a.out, static_cast<int64_t>(t)), static_cast<size_t>(a.weight.dim(1))});
}

}  // namespace adder::ref
