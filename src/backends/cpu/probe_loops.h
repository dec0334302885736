// The loops of the machine probe, compiled once per instruction set. Each returns a value that
// depends on all of its work, so that none of it can be left out.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace adder {

enum class ReadLoop { kOneStream, kFourStreams, kPrefetch };

// Reads `floats` floats, a multiple of 1024.
float probe_read(const Isa& isa, ReadLoop loop, const float* memory, int64_t floats);

struct ProbeWork {
  double done;  // units of work
  float sink;
};
// Multiply-adds on registers: two units each.
ProbeWork probe_fma(const Isa& isa, int64_t iterations);
// int8 products summed in int32 on registers, two units each.
ProbeWork probe_int8(const Isa& isa, int64_t iterations);
// 2^x over numbers in the L1 cache, one unit each.
ProbeWork probe_exp2(const Isa& isa, int64_t iterations);

}  // namespace adder
