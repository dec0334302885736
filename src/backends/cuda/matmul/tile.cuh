// Where an element of a 16 x 8 tile of outputs lies in a warp, and how the tiles of chains are
// added up.
#pragma once

#include "backends/cuda/arch.cuh"
#include "backends/cuda/matmul/products.h"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kTileOutputs = 16, kTileTokens = 8;
// Of a skinny block: 8, or 16 for few outputs, where more blocks would find no multiprocessor.
inline constexpr int kSkinnyWarps = 8, kManyWarps = 16;
// The wide kernels: a thread block makes 128 outputs of 64 tokens, a warp 32 of 32.
inline constexpr int kWideOutputs = 128, kWideTokens = 64, kWideThreads = 256;
inline constexpr int kWarpOutputTiles = 2, kWarpTokenTiles = 4;

// Element `at` of the four that a lane holds (arch.cuh, mma_16x8x16).
__device__ __forceinline__ int tile_output(int lane, int at) {
  return lane / 4 + at / 2 * 8;
}
__device__ __forceinline__ int tile_token(int lane, int at) {
  return lane % 4 * 2 + at % 2;
}

// f(output tile, token tile, element) for each output of a lane in the wide kernels.
template <typename F>
__device__ __forceinline__ void for_each_output(F&& f) {
  ADDER_UNROLL
  for (int tile = 0; tile < kWarpOutputTiles; ++tile) {
    ADDER_UNROLL
    for (int token_tile = 0; token_tile < kWarpTokenTiles; ++token_tile) {
      ADDER_UNROLL
      for (int at = 0; at < 4; ++at) f(tile, token_tile, at);
    }
  }
}

// The place of a 16-byte chunk in a row of 8 (or 16): odd rows have their halves swapped, so that
// lanes 4 g + i can read chunks 4 c + i of rows g without bank conflicts.
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return chunk ^ (row & 1) * 4;
}

// The sums of a skinny block: [chain][token tile][lane].
template <int TokenTiles>
__device__ __forceinline__ float4& chain_tile(float4* sums, int chain, int tile, int lane) {
  return sums[(chain * TokenTiles + tile) * kWarpSize + lane];
}

template <int TokenTiles>
constexpr size_t skinny_shared_bytes(const Chains& chains) {
  return static_cast<size_t>(chains.count) * TokenTiles * kWarpSize * sizeof(float4);
}

// Once all chains are there: store(output, token, sum) for each element of the block's tiles.
template <int TokenTiles, typename Store>
__device__ __forceinline__ void add_chains(const float4* sums, int chains, Store&& store) {
  constexpr int kElements = kTileOutputs * kTileTokens * TokenTiles;
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += static_cast<int>(blockDim.x)) {
    const int output = e % kTileOutputs, token = e / kTileOutputs;
    const int lane = output % 8 * 4 + token % 8 / 2, at = output / 8 * 2 + token % 2;
    const float* from = reinterpret_cast<const float*>(sums + token / 8 * kWarpSize + lane) + at;
    float sum = 0;
    for (int chain = 0; chain < chains; ++chain) sum += from[chain * TokenTiles * kWarpSize * 4];
    store(output, token, sum);
  }
}

}  // namespace adder::ADDER_CUDA_NS
