// The ladder of scans as benchmarks take it.
#pragma once

#include <vector>

#include "backends/cuda/namespace.h"
#include "backends/registry.h"

namespace adder::ADDER_CUDA_NS {

// Each rung with float32 activations, and then each with bfloat16. Throws as make_backend().
std::vector<LadderRung> make_ladder(int device_index);

}  // namespace adder::ADDER_CUDA_NS
