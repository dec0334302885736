// The instruction sets that are compiled into this binary, and the one that a backend runs.
//
// Highway compiles every operation once per target and collects the functions in a table
// (HWY_EXPORT). Its own dispatch keeps the chosen target in one global of the process; here each
// backend carries the table index in its context instead, so backends with different instruction
// sets can live side by side and a forced one is certain to be the one that runs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

struct Isa {
  std::string_view name;  // Highway's: "AVX2", "SSE4", "SCALAR", ...
  size_t index = 0;       // into Highway's dispatch tables
};

// Compiled in and able to run on this machine, the best one first; never empty.
std::vector<Isa> runnable_isas();

// name empty: the best one. Throws Error(kBadInput) naming those that can run.
Isa choose_isa(std::string_view name);

// The one that the environment variable ADDER_FORCE_ISA names, the best one without it.
Isa isa_from_environment();

}  // namespace adder

// The function that HWY_EXPORT(function) collected for the context's instruction set.
#define ADDER_CPU_DISPATCH(context, function) (*HWY_DISPATCH_TABLE(function)[(context).isa.index])
