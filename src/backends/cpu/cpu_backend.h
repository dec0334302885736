// The CPU backend: Highway kernels, one instruction set per backend, our own threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace adder {

// Instruction sets that are compiled in and that this machine can run, the best one first.
std::vector<std::string> cpu_isas();

// threads <= 0: one per CPU that this process may use. isa empty: the environment variable
// ADDER_FORCE_ISA, and without it the best one. pin: as ThreadPool. Throws Error(kBadInput) for an
// instruction set that cannot run here.
std::unique_ptr<Backend> make_cpu_backend(int threads, std::string_view isa = {}, bool pin = true);

}  // namespace adder
