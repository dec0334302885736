// The forms of the Mamba-2 scan, from the plainest to the one that the backend takes, for
// benchmarks and tests.
#pragma once

#include <span>

#include "backends/cuda/context.h"
#include "kernels/ssd_scan.h"

namespace adder::ADDER_CUDA_NS {

struct SsdRung {
  const char* name;
  const char* description;
  // Whether it has kernels for the shape. Nothing else may be run.
  bool (*takes)(const SsdScanArgs& args);
  // As Backend::ssd_scan without its checks. x, B, C, z and out are F32, or all BF16.
  void (*run)(CudaContext& context, const SsdScanArgs& args);
};
std::span<const SsdRung> ssd_ladder();

}  // namespace adder::ADDER_CUDA_NS
