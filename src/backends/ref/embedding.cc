#include "backends/ref/ref_ops.h"

namespace adder::ref {

void embedding(const EmbeddingArgs& a) {
  for (size_t t = 0; t < a.ids.size(); ++t) {
    float* out = at(a.out, static_cast<int64_t>(t));
    for (int64_t j = 0; j < a.weight.dim(1); ++j) out[j] = weight_at(a.weight, a.ids[t], j);
  }
}

}  // namespace adder::ref
