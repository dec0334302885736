// The limits of a GPU, measured.
#pragma once

#include <memory>

#include "backends/cuda/namespace.h"
#include "backends/registry.h"

namespace adder::ADDER_CUDA_NS {

// Throws as make_backend(). "L3" is the GPU's L2 cache, the last one before memory, and "L2" the L1
// caches of the multiprocessors.
std::unique_ptr<MachineProbe> make_probe(int device_index);

}  // namespace adder::ADDER_CUDA_NS
