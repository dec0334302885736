#include "backends/cuda/scan/scan_ladder.h"

#include <array>

#include "backends/cuda/ops.h"
#include "backends/cuda/scan/scan_kernels.h"
#include "core/error.h"

namespace adder::ADDER_CUDA_NS {
namespace {

bool any_shape(const Device&, const SelectiveScanArgs&) {
  return true;
}

bool unrolled_states(const Device&, const SelectiveScanArgs& a) {
  return a.B.dim(2) <= kMaxUnrolledStates;
}

bool sixteen_states(const Device&, const SelectiveScanArgs& a) {
  return a.B.dim(2) == 16;
}

void unrolled(CudaContext& context, const SelectiveScanArgs& a) {
  if (!unrolled_states(context.device, a))
    fail(ErrorCode::kUnsupported, "unrolled scan: expected d_state of at most {}, got {}",
         kMaxUnrolledStates, a.B.dim(2));
  scan_unrolled(context, a);
}

template <int kLanes, bool kFma = kFmaInProduction>
void flash(CudaContext& context, const SelectiveScanArgs& a) {
  if (!sixteen_states(context.device, a))
    fail(ErrorCode::kUnsupported, "FlashScan with {} lanes: expected d_state 16, got {}", kLanes,
         a.B.dim(2));
  flash_scan(context, a, {.lanes = kLanes, .fma = kFma});
}

template <int kLanes>
void flash_bulk(CudaContext& context, const SelectiveScanArgs& a) {
  if (!can_copy_in_bulk(context.device, a))
    fail(ErrorCode::kUnsupported,
         "FlashScan by bulk copies: expected sm_90, d_state 16 and rows aligned to 16 bytes");
  flash_scan(context, a, {.lanes = kLanes, .bulk = true});
}

constexpr std::array kLadder{
    ScanRung{"naive", "a thread per channel, states in memory", any_shape, scan_naive, false},
    ScanRung{"unrolled", "a thread per channel, states in registers, 4 tokens at once",
             unrolled_states, unrolled, true},
    ScanRung{"blelloch", "a block per channel, up-sweep and down-sweep in shared memory", any_shape,
             scan_blelloch, false},
    ScanRung{"three-level", "a block per channel and 1024 tokens, decoupled look-back", any_shape,
             scan_three_level, false},
    ScanRung{"fused", "a block per channel as mamba-ssm, all of the layer's scan in one pass",
             any_shape, scan_fused, false},
    ScanRung{"flash-1", "FlashScan, one lane per channel", sixteen_states, flash<1>, true},
    ScanRung{"flash-2", "FlashScan, 2 lanes per channel", sixteen_states, flash<2>, true},
    ScanRung{"flash-4", "FlashScan, 4 lanes per channel", sixteen_states, flash<4>, true},
    ScanRung{"flash-8", "FlashScan, 8 lanes per channel", sixteen_states, flash<8>, true},
    ScanRung{"flash-16", "FlashScan, 16 lanes per channel", sixteen_states, flash<16>,
             !kFmaInProduction},
    ScanRung{"flash-2-bulk", "FlashScan, 2 lanes, a warp copies (sm_90)", can_copy_in_bulk,
             flash_bulk<2>, true},
    ScanRung{"flash-4-bulk", "FlashScan, 4 lanes, a warp copies (sm_90)", can_copy_in_bulk,
             flash_bulk<4>, true},
    ScanRung{"flash-8-bulk", "FlashScan, 8 lanes, a warp copies (sm_90)", can_copy_in_bulk,
             flash_bulk<8>, true},
    ScanRung{"flash-4-fma", "FlashScan, 4 lanes, every 4th exp2 on the FMA units", sixteen_states,
             flash<4, true>, kFmaInProduction},
    ScanRung{"flash-8-fma", "FlashScan, 8 lanes, every 4th exp2 on the FMA units", sixteen_states,
             flash<8, true>, kFmaInProduction},
    ScanRung{"production", "chosen by shape", any_shape, selective_scan, true},
};

}  // namespace

std::span<const ScanRung> scan_ladder() {
  return kLadder;
}

}  // namespace adder::ADDER_CUDA_NS
