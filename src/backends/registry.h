// Which backends this build has, and how to make one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace adder {

// Names that make_backend accepts in this build, the preferred one first.
std::vector<std::string> available_backends();

// device: "cpu" or "ref". threads <= 0: one per CPU that this process may use. The environment
// variable ADDER_FORCE_ISA (e.g. "AVX2", "SSE4", "SCALAR" or another name that the machine's
// description shows) pins the instruction set of "cpu".
// Throws Error(kBadInput) for an unknown device or an instruction set that cannot run here.
std::unique_ptr<Backend> make_backend(std::string_view device, int threads = 0);

}  // namespace adder
