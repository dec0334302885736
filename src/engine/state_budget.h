// How many sequences a machine has room for.
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace adder {

// At most `wanted`, fewer where their states would take more than a quarter of the memory that is
// free; at least 1.
int32_t slots_that_fit(const Checkpoint& checkpoint, int32_t wanted);

}  // namespace adder
