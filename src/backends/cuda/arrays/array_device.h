// Users' arrays in the memory of an NVIDIA GPU (kernels/array_device.h).
#pragma once

#include <memory>

#include "backends/cuda/namespace.h"
#include "kernels/array_device.h"

namespace adder::ADDER_CUDA_NS {

// Throws as make_backend().
std::unique_ptr<ArrayDevice> make_array_device(int device_index);

}  // namespace adder::ADDER_CUDA_NS
