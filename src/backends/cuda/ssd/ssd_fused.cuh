// What the two launches of ssd_fused share: the operands of a chunk that all heads of a group have
// in common, in scratch memory, in the order in which the tensor cores take them.
#pragma once

#include "backends/cuda/ssd/bf16_parts.cuh"
#include "backends/cuda/ssd/ssd_chunk.cuh"
#include "backends/cuda/ssd/ssd_kernels.h"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kRowTiles = kSsdChunk / 16;                      // of a chunk
inline constexpr int kCausalTiles = kRowTiles * (kRowTiles + 1) / 2;  // on or below the diagonal
constexpr __device__ __forceinline__ int causal_tile(int row_tile, int column_tile) {
  return row_tile * (row_tile + 1) / 2 + column_tile;
}

// 16 x 16 accumulators of two mma_16x8x16 side by side, a float4 per lane of each.
struct AccumulatorTile {
  float4 half[2][kWarpSize];
};

// N: d_state, a multiple of 16. Rows behind the end of a sequence are 0.
template <typename T, int N>
struct GroupChunk {
  static constexpr int kParts = PartCount<T>::kExact;
  FragmentTile C[kRowTiles][N / 16][kParts];  // left: rows l, columns n
  FragmentTile B[N / 16][kRowTiles][kParts];  // right: rows s, columns n
  AccumulatorTile CB[kCausalTiles];           // C B^T: rows l, columns s
};

template <typename T>
struct FusedParams {
  SsdParams<T> p;
  SsdDecay* decays;                    // (n_heads, n_tokens)
  void* chunks;                        // (chunk slots, n_groups) GroupChunk<T, N>
  bool x_vectors, z_pairs, out_pairs;  // aligned for 16 bytes, for two elements
};

// Launches. N is 64 or 128.
template <typename T, int N>
void launch_prepare(CudaContext& context, const FusedParams<T>& params);
template <typename T, int N>
void launch_fused(CudaContext& context, const FusedParams<T>& params);

}  // namespace adder::ADDER_CUDA_NS
