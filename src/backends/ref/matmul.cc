#include "backends/ref/ref_ops.h"

namespace adder::ref {

void matmul(const MatmulArgs& a) {
  const int64_t rows = a.x.dim(0), in_features = a.x.dim(1), out_features = a.weight.dim(0);
  for (int64_t t = 0; t < rows; ++t) {
    const float* x = at(a.x, t);
    float* out = at(a.out, t);
    for (int64_t n = 0; n < out_features; ++n) {
      double sum = a.bias ? *at(a.bias, n) : 0.0;
      for (int64_t k = 0; k < in_features; ++k)
        sum += static_cast<double>(x[k]) * weight_at(a.weight, n, k);
      out[n] = static_cast<float>(sum);
    }
  }
}

}  // namespace adder::ref
