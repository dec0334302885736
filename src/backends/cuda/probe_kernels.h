// Loops that load one resource of a GPU.
#pragma once

#include <cstdint>

#include "backends/cuda/device.h"

namespace adder::ADDER_CUDA_NS {

// Each enqueues one launch and returns the units that it does (backends/registry.h, Limit). `sink`
// is memory for one float, which keeps the compiler from leaving the work out.

// Reads `bytes`, a multiple of 64 KB, `passes` times; the whole grid shares them, or each
// thread block reads them for itself.
double probe_read(Device& device, const void* memory, int64_t bytes, int passes, bool shared_by_all,
                  float* sink);
double probe_fma(Device& device, int steps, float* sink);
double probe_int8(Device& device, int steps, float* sink);
double probe_exp2(Device& device, int steps, float* sink);

}  // namespace adder::ADDER_CUDA_NS
