// The work of one operation, counted from its arguments: what it must move and compute on any
// implementation, so that a measured time can be held against the limits of the machine.
#pragma once

#include "kernels/backend.h"
#include "measure/ceilings.h"

namespace adder {

struct OpCost {
  double memory_bytes = 0;  // weights, and states read and written: too much for the caches
  double cache_bytes = 0;   // activations, which stay in the L3 cache
  double flops = 0;         // float32; a multiply-add is two, and an exp2 has three of them
  double int8_ops = 0;      // likewise
  double exp2 = 0;          // exponentials and logarithms

  OpCost& operator+=(const OpCost& other);
};

OpCost cost_of(const EmbeddingArgs& args);
OpCost cost_of(const RmsNormArgs& args);
OpCost cost_of(const GatedRmsNormArgs& args);
OpCost cost_of(const MatmulArgs& args);
OpCost cost_of(const CausalConv1dArgs& args);
OpCost cost_of(const SelectiveScanArgs& args);
OpCost cost_of(const SsdScanArgs& args);
OpCost cost_of(const SampleArgs& args);

struct Bound {
  double seconds = 0;  // that the work takes at least
  Limit limit = Limit::kMemoryRead;
};

// The slowest of the resources, as if all others worked at the same time.
Bound bound_of(const OpCost& cost, const LimitRates& rates);

}  // namespace adder
