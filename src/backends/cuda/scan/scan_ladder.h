// The Mamba-1 scan from the naive loop to what production runs, as a table for benchmarks and
// tests.
#pragma once

#include <span>
#include <string_view>

#include "backends/cuda/context.h"
#include "kernels/selective_scan.h"

namespace adder::ADDER_CUDA_NS {

struct ScanRung {
  std::string_view name, description;
  // Whether it has a kernel for these operands on this device.
  bool (*supports)(const Device& device, const SelectiveScanArgs& args);
  // Enqueues the scan. Takes what check(args) lets pass, or the same with u, delta, B, C, z and out
  // in bfloat16; throws Error(kUnsupported) for what it does not support.
  void (*run)(CudaContext& context, const SelectiveScanArgs& args);
  // Gives the bits of `production`, whatever the shape.
  bool production_bits;
};

std::span<const ScanRung> scan_ladder();

}  // namespace adder::ADDER_CUDA_NS
