// The kernels of the Mamba-1 scan. All take activations (u, delta, B, C, z, out) in float32 or
// bfloat16, the rest in float32, and compute in float32.
#pragma once

#include "backends/cuda/context.h"
#include "kernels/selective_scan.h"

namespace adder::ADDER_CUDA_NS {

// ---- Any shape ----

void scan_naive(CudaContext& context, const SelectiveScanArgs& args);
void scan_blelloch(CudaContext& context, const SelectiveScanArgs& args);
void scan_three_level(CudaContext& context, const SelectiveScanArgs& args);
void scan_fused(CudaContext& context, const SelectiveScanArgs& args);

// ---- One arithmetic, scan_lanes.cuh: the same bits whichever runs ----

// Whether it takes the exponentials of the last quarter of the states to the FMA units. Derived
// from SASS (flash_scan.cuh), not measured: for 32 channels of a token the special function unit of
// a quarter SM is busy for 19 * 8 = 152 clocks (16 states, softplus, silu; 8 clocks per instruction
// of a warp), while 156 to 210 instructions are issued, one a clock. A quarter on the FMA units
// saves 32 of the former and adds 41 (4 lanes) to 62 (8 lanes) to the latter, which is the bound
// already. The rungs "flash-4-fma" and "flash-8-fma" have it for measurements.
inline constexpr bool kFmaInProduction = false;

inline constexpr int64_t kMaxUnrolledStates = 16;
void scan_unrolled(CudaContext& context, const SelectiveScanArgs& args);

inline constexpr int64_t kMaxFlashStates = 256;
struct FlashScanChoice {
  int lanes = 0;      // that share a channel: 1, 2, 4, 8, 16 with d_state 16; 0: chosen by shape
  bool bulk = false;  // tiles by bulk copies of a producer warp (sm_90, d_state 16)
  bool fma = kFmaInProduction;  // else other bits; 4 or 8 lanes
};
// Whether these operands can be copied in bulk on this device.
bool can_copy_in_bulk(const Device& device, const SelectiveScanArgs& args);
void flash_scan(CudaContext& context, const SelectiveScanArgs& args,
                const FlashScanChoice& choice = {});

}  // namespace adder::ADDER_CUDA_NS
