// How the CPU backend keeps the weights of matmul: repacked once, at load, into panels of 32
// outputs that a kernel reads from the first byte to the last, one stream for the prefetcher.
//
// Panel p holds outputs [32 p, 32 p + 32); outputs beyond the last are zeros. In a panel, with
// "[a][b]" the order of memory, and quads of 4 neighbours along k for the byte products:
//   F32, F16, BF16   [k][32]
//   Q8_0             per 32 of k: f16 d[32]; int8 q[8 quads][32][4]                    1,088 bytes
//   Q4_0             per 32 of k: f16 d[32]; nibbles[4][32][4]: low is quad j, high quad j + 4
//   Q4_K             per 256: f16 d[32], f16 dmin[32]; 8 of {uint8 scale[32], min[32], nibbles as
//                    above}                                                            4,736 bytes
//   Q5_K             as Q4_K with uint8 q[8 quads][32][4] for the nibbles
//   Q6_K             per 256: f16 d[32]; 8 of {int8 scale[2][32], int8 q[8 quads][32][4]}, where
//                    scale[0] is for quads 0..3 of the 32
// Blocks of memory above 4 MB lie on huge pages where the system grants them: with 4 KB pages a
// single core reads about a fifth slower.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace adder {

inline constexpr int64_t kPanel = 32;  // outputs
// Bytes ahead that weights are asked for when they come from memory: a core waits for them with too
// few loads under way where each line takes many instructions (16-bit and quantized weights).
inline constexpr int64_t kStreamAhead = 2048;

// Bytes of a panel over all of k (in_features).
size_t panel_bytes(DType type, int64_t k);

// Packs an (out_features, in_features) matrix in host memory whose rows are contiguous. The result
// is a handle to *owner's memory with the layout kPacked, which only matmul can read.
Tensor pack_weight(const Tensor& host, ThreadPool& pool, Buffer* owner);

}  // namespace adder
