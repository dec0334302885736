// A 64 x 64 tile of a matrix product on the FMA units.
#pragma once

#include "backends/cuda/arch.cuh"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kTile = 64, kTileThreads = 256;

struct TileProductShared {
  static constexpr int kDepth = 16;
  float4 left[kDepth][kTile / 4 + 1], right[kDepth][kTile / 4 + 1];
};

// sum[r][c] += left(row, k) * right(k, column) over k < depth, in the order of k, for rows 4 y + r
// and columns 4 x + c of thread 16 y + x. Ends with a barrier, so that `shared` may be used again.
template <typename Left, typename Right>
__device__ __forceinline__ void multiply_tile(float (&sum)[4][4], int depth, const Left& left,
                                              const Right& right, TileProductShared& shared) {
  constexpr int kDepth = TileProductShared::kDepth;
  const int thread = static_cast<int>(threadIdx.x), x = thread % 16, y = thread / 16;
  for (int from = 0; from < depth; from += kDepth) {
    for (int e = thread; e < kDepth * kTile; e += kTileThreads) {
      const int k = e % kDepth, at = e / kDepth;
      const bool inside = from + k < depth;
      reinterpret_cast<float*>(shared.left[k])[at] = inside ? left(at, from + k) : 0.0f;
      reinterpret_cast<float*>(shared.right[k])[at] = inside ? right(from + k, at) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      const float4 l = shared.left[k][y], r = shared.right[k][x];
      const float rows[4] = {l.x, l.y, l.z, l.w}, columns[4] = {r.x, r.y, r.z, r.w};
      ADDER_UNROLL
      for (int i = 0; i < 4; ++i) {
        ADDER_UNROLL
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(rows[i], columns[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
}

}  // namespace adder::ADDER_CUDA_NS
