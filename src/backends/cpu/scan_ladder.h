// The Mamba-1 scan written in steps, from the textbook loop to the kernel that the backend uses, to
// measure what each idea is worth. Every rung computes selective_scan whole (kernels/
// selective_scan.h), on one thread, and is tested against the reference.
#pragma once

#include <span>
#include <string_view>

#include "backends/cpu/context.h"
#include "kernels/selective_scan.h"

namespace adder {

struct ScanRung {
  std::string_view name, description;
  // context has one thread. Arguments have passed check(). May allocate.
  void (*run)(const SelectiveScanArgs& args, CpuContext& context);
};

// The slowest first; the last one is cpu_selective_scan.
std::span<const ScanRung> scan_ladder();

}  // namespace adder
