// Drawing from a row in which many ids matter, without sorting it: weights are added up in buckets
// of nearly equal logits, and only the bucket in which a sum is reached is sorted.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu/context.h"

namespace adder {

// An id that may be drawn.
struct SampleCandidate {
  double logit = 0;   // with the repetition penalty, which is applied in float64
  double weight = 0;  // exp((logit - largest) / temperature)
  int32_t id = 0;
};

// The definition's order (kernels/sample.h): most probable first, lowest id first among equals.
inline bool before(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// A row after the penalty: logits[i] is -inf and weights[i] 0 for every id in `recent`, which holds
// those ids in ascending order with their own logits and weights.
struct WeightedRow {
  const float* logits;
  const double* weights;
  int64_t n;
  std::span<const SampleCandidate> recent;
  double largest, temperature;
  double sum;  // of all weights
};

// The id that top_p and the draw of kernels/sample.h give. Scratch: n buckets and n candidates.
int32_t draw_by_buckets(const WeightedRow& row, double top_p, double uniform, uint16_t* bucket_of,
                        SampleCandidate* scratch, const CpuContext& context);

}  // namespace adder
