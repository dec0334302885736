#include <vector>

#include "backends/ref/ref_ops.h"
#include "core/quant.h"

namespace adder::ref {
namespace {

// x rounded to int8 against rows of blocks: within a block the sums are integers, and exact.
void quantized_matmul(const MatmulArgs& a) {
  const int64_t rows = a.x.dim(0), in_features = a.x.dim(1), out_features = a.weight.dim(0);
  const int64_t blocks = in_features / kActivationBlock;
  std::vector<int8_t> q(static_cast<size_t>(in_features));
  std::vector<float> d(static_cast<size_t>(blocks));
  for (int64_t t = 0; t < rows; ++t) {
    quantize_activations({at<const float>(a.x, t), q.size()}, q.data(), d.data());
    for (int64_t n = 0; n < out_features; ++n) {
      double sum = a.bias ? *at(a.bias, n) : 0.0;
      for (int64_t b = 0; b < blocks; ++b) {
        const QuantBlock w =
            unpack_block(a.weight.dtype, a.weight.bytes(n * a.weight.stride[0]), b);
        int dot[2] = {0, 0}, total = 0;
        for (size_t i = 0; i < 32; ++i) {
          const int8_t x = q[static_cast<size_t>(b * kActivationBlock) + i];
          dot[i / 16] += w.q[i] * x;
          total += x;
        }
        const double product = static_cast<double>(w.scale[0]) * dot[0] +
                               static_cast<double>(w.scale[1]) * dot[1] -
                               static_cast<double>(w.base) * total;
        sum += static_cast<double>(d[static_cast<size_t>(b)]) * product;
      }
      at(a.out, t)[n] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& a) {
  if (is_quantized(a.weight.dtype)) return quantized_matmul(a);
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
