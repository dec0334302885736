// What the system says about the machine.
#pragma once

#include <cstdint>
#include <string>

namespace adder {

std::string cpu_name();          // "AMD EPYC 7R13 Processor"; "unknown" where the system hides it
uint64_t available_memory();     // bytes that can be taken without swapping; 0: unknown
uint64_t peak_resident_bytes();  // of this process since it began

}  // namespace adder
