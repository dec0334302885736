// The operations of the CPU backend. Arguments have passed kernels/checks.h; nothing throws after
// the first output is written. One .cc file per operation, compiled once per instruction set.
#pragma once

#include "backends/cpu/context.h"
#include "kernels/backend.h"

namespace adder {

void cpu_embedding(const EmbeddingArgs& args, CpuContext& context);
void cpu_rms_norm(const RmsNormArgs& args, CpuContext& context);
void cpu_gated_rms_norm(const GatedRmsNormArgs& args, CpuContext& context);
void cpu_matmul(const MatmulArgs& args, CpuContext& context);
void cpu_causal_conv1d(const CausalConv1dArgs& args, CpuContext& context);
void cpu_selective_scan(const SelectiveScanArgs& args, CpuContext& context);
void cpu_ssd_scan(const SsdScanArgs& args, CpuContext& context);
void cpu_sample(const SampleArgs& args, CpuContext& context);

}  // namespace adder
