// The forms of the Mamba-2 scan. Activations (x, B, C, z, out) are F32 or BF16, the rest is F32.
// All enqueue their work.
#pragma once

#include "backends/cuda/context.h"
#include "kernels/ssd_scan.h"

namespace adder::ADDER_CUDA_NS {

// The recurrence, element by element. Any shape.
void ssd_serial(CudaContext& context, const SsdScanArgs& args);

// The chunked form in five kernels on the FMA units: decays, C B^T, what each chunk adds to
// the state, the states between chunks, the outputs. Any shape.
void ssd_chunked(CudaContext& context, const SsdScanArgs& args);

// The chunked form on the tensor cores with the state in registers from the first chunk to the
// last, and the recurrence for what is too short for a chunk.
void ssd_fused(CudaContext& context, const SsdScanArgs& args);
bool ssd_fused_takes(const SsdScanArgs& args);

// The recurrence with 16-byte accesses and a warp's lanes along the state: for short pieces.
void ssd_step(CudaContext& context, const SsdScanArgs& args);
bool ssd_step_takes(const SsdScanArgs& args);
// Only the rows that ssd_fused leaves.
void ssd_step_tails(CudaContext& context, const SsdScanArgs& args);

// Rows at the end of a sequence that ssd_fused leaves to the recurrence of ssd_step: fewer than
// this behind the last whole chunk. A chunk costs the same however few rows it has (derived for a
// head of 64 x 128: 1184 mma_16x8x16 with bfloat16 and 3552 with float32, at about one per clock
// and multiprocessor), a row of the recurrence 256 clocks of its 128 lanes. The rows behind whole
// chunks are the same ones however a sequence is cut at chunk edges, so the choice keeps their
// bits.
inline constexpr int64_t kSsdShortTail = 8;

constexpr int64_t ssd_chunked_rows(int64_t length) {
  const int64_t tail = length % kSsdChunkAlign;
  return tail < kSsdShortTail ? length - tail : length;
}

}  // namespace adder::ADDER_CUDA_NS
