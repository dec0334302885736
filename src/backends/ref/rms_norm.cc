#include <vector>

#include "backends/ref/ref_ops.h"

namespace adder::ref {

void rms_norm(const RmsNormArgs& a) {
  const int64_t rows = a.x.dim(0), dim = a.x.dim(1);
  for (int64_t t = 0; t < rows; ++t) {
    const float* v = at(a.x, t);
    if (a.residual) {
      // The residual stream is float32 (docs/numerics.md), so the sum is rounded before
      // it is normalised.
      float* residual = at(a.residual, t);
      for (int64_t j = 0; j < dim; ++j) residual[j] += v[j];
      v = residual;
    }
    double sum = 0;
    for (int64_t j = 0; j < dim; ++j) sum += static_cast<double>(v[j]) * v[j];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(dim) + a.eps);
    float* out = at(a.out, t);
    for (int64_t j = 0; j < dim; ++j) {
      const double weight = a.weight ? *at(a.weight, j) : 1.0;
      out[j] = static_cast<float>(weight * v[j] * scale);
    }
  }
}

void gated_rms_norm(const GatedRmsNormArgs& a) {
  const int64_t rows = a.x.dim(0), dim = a.x.dim(1), width = dim / a.groups;
  std::vector<double> v(static_cast<size_t>(width));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t begin = 0; begin < dim; begin += width) {
      const float* x = at(a.x, t) + begin;
      const float* z = at(a.z, t) + begin;
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) {
        double& element = v[static_cast<size_t>(j)];
        element = a.norm_before_gate ? x[j] : x[j] * silu(z[j]);
        sum += element * element;
      }
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + a.eps);
      float* out = at(a.out, t) + begin;
      for (int64_t j = 0; j < width; ++j) {
        const double gate = a.norm_before_gate ? silu(z[j]) : 1.0;
        out[j] =
            static_cast<float>(*at(a.weight, begin + j) * v[static_cast<size_t>(j)] * scale * gate);
      }
    }
  }
}

}  // namespace adder::ref
