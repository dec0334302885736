// Every call of the CUDA runtime goes through ADDER_CUDA_CHECK.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/namespace.h"

namespace adder::ADDER_CUDA_NS {

// Throws Error(kInternal) that names the call and CUDA's reason.
void check_cuda(cudaError_t result, const char* call);

}  // namespace adder::ADDER_CUDA_NS

#define ADDER_CUDA_CHECK(call) ::adder::ADDER_CUDA_NS::check_cuda((call), #call)
