// The ceilings of this processor (backends/registry.h).
#pragma once

#include <memory>

#include "backends/registry.h"

namespace adder {

// threads <= 0: one per CPU that this process may use. The instruction set is the one that
// make_cpu_backend() would choose, ADDER_FORCE_ISA included; throws Error(kBadInput) like it.
std::unique_ptr<MachineProbe> make_cpu_probe(int threads);

}  // namespace adder
