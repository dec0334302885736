// The backend for NVIDIA GPUs from sm_80 on.
#pragma once

#include <memory>

#include "backends/cuda/namespace.h"
#include "kernels/backend.h"

namespace adder::ADDER_CUDA_NS {

// Throws Error(kUnsupported) when the machine has no such device, Error(kBadInput) for an index
// that it does not have.
std::unique_ptr<Backend> make_backend(int device_index);

}  // namespace adder::ADDER_CUDA_NS
