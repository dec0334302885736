// How one matrix product is cut up, shared by the kernels of the three weight types.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/context.h"
#include "kernels/matmul.h"

namespace adder {

// The order of a sum is fixed by in_features: blocks of equal length along k, inside a block one
// vector accumulator whose lanes are added at the end, the blocks added in order to the bias.
// 512 floats: 7 rows of a register tile take 14 KB of the 32 KB L1 cache, and adding the lanes
// costs about 5 % of the block's multiplications.
inline constexpr int64_t kMaxSumBlock = 512;

// Length of the blocks along k: a multiple of 16 (the widest vector), the last one may be shorter.
constexpr int64_t sum_block(int64_t in_features) {
  const int64_t blocks = std::max<int64_t>(1, (in_features + kMaxSumBlock - 1) / kMaxSumBlock);
  return std::max<int64_t>(16, (in_features + blocks * 16 - 1) / (blocks * 16) * 16);
}

void cpu_matmul_f32(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_f16(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_bf16(const MatmulArgs& args, CpuContext& context);

}  // namespace adder
