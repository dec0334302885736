// The passes of `sample` that touch every logit of a row.
#pragma once

#include <cstdint>

#include "backends/cpu/context.h"

namespace adder {

// Logits that share a maximum: a row of 50k keeps 1571 maxima, enough to find a top-k threshold.
inline constexpr int64_t kMaximaBlock = 32;

// maxima[b] = largest of x[32 b .. 32 b + 32). Returns the largest of all, NaN if there is a NaN.
float block_maxima(const float* x, int64_t n, float* maxima, const CpuContext& context);

// weights[i] = exp((x[i] - largest) / temperature) in float64, the definition's precision: sums
// over a vocabulary of 50k then differ from it by less than 1e-13. Returns their sum.
double exp_weights(const float* x, int64_t n, double largest, double temperature, double* weights,
                   const CpuContext& context);

// buckets[i] = (largest - x[i]) / temperature * scale, rounded down, at most `last`, in float64.
void bucket_indices(const float* x, int64_t n, double largest, double temperature, double scale,
                    uint16_t last, uint16_t* buckets, const CpuContext& context);

}  // namespace adder
