// What the matmul kernels of all weight types share.
#pragma once

#include <cstdint>

#include "backends/cpu/context.h"
#include "kernels/matmul.h"

namespace adder {

// The order of a sum is fixed by in_features: for float weights blocks of this length along k, in a
// block one accumulator from the first element to the last, the blocks added in order to the bias.
// 256 floats of 32 outputs are 32 KB, and adding a block to memory costs about 2 % of its
// multiplications.
inline constexpr int64_t kSumBlock = 256;

void cpu_matmul_f32(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_f16(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_bf16(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_q8_0(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_q4_0(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_q4_k(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_q5_k(const MatmulArgs& args, CpuContext& context);
void cpu_matmul_q6_k(const MatmulArgs& args, CpuContext& context);

}  // namespace adder
