// The products of one chunk in ssd_fused.cu, and what is done to their operands and results, by one
// warp. `chunk` is a FusedBlock::Chunk in shared memory.
#pragma once

#include "backends/cuda/ssd/ssd_fused.cuh"
#include "backends/cuda/ssd/ssd_vectors.cuh"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kSharing = 2;  // warps that have the same columns
// Row tiles of outputs that each of them writes.
inline constexpr int kOwnTiles = kRowTiles / kSharing;

// C B^T of one head becomes M, in parts, tile by tile.
template <int kWarps, typename Tile>
__device__ __forceinline__ void make_M(Tile (&M)[kCausalTiles], const SsdDecay (&decay)[kSsdChunk],
                                       int warp, int lane) {
  constexpr int kParts = static_cast<int>(sizeof(Tile) / sizeof(FragmentTile));
  const int g = lane / 4, i = lane % 4;
  for (int tile = warp; tile < kCausalTiles; tile += kWarps) {
    const int row_tile = tile >= 6 ? 3 : tile >= 3 ? 2 : tile >= 1 ? 1 : 0;
    const int column_tile = tile - causal_tile(row_tile, 0);
    uint32_t a[kParts][4];
    float4 CB[2];
    for (int half = 0; half < 2; ++half) CB[half] = M[tile].CB.half[half][lane];
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int s = 16 * column_tile + 8 * half + 2 * i;
      const SsdDecay left = decay[s], right = decay[s + 1];
      ADDER_UNROLL
      for (int down = 0; down < 2; ++down) {
        const int l = 16 * row_tile + 8 * down + g;
        const SsdDecay row = decay[l];
        const float low = down == 0 ? CB[half].x : CB[half].z;
        const float high = down == 0 ? CB[half].y : CB[half].w;
        uint32_t pair[kParts];
        split_pair(s <= l ? low * decay_between(row, left) * left.dt : 0.0f,
                   s + 1 <= l ? high * decay_between(row, right) * right.dt : 0.0f, pair);
        ADDER_UNROLL
        for (int part = 0; part < kParts; ++part) a[part][2 * half + down] = pair[part];
      }
    }
    ADDER_UNROLL
    for (int part = 0; part < kParts; ++part)
      M[tile].parts[part].lane[lane] = make_uint4(a[part][0], a[part][1], a[part][2], a[part][3]);
  }
}

// The right operand from a tile of x: 16 rows from `x` on, 16 columns. `usable(v)` stands for v.
template <typename T, typename Usable>
__device__ __forceinline__ void load_inputs(uint32_t (&b)[2][PartCount<T>::kExact][2], const T* x,
                                            int pitch, int lane, const Usable& usable) {
  constexpr int kExact = PartCount<T>::kExact;
  const int g = lane / 4, i = lane % 4;
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    ADDER_UNROLL
    for (int r = 0; r < 2; ++r) {
      const T* at = x + (2 * i + 8 * r) * pitch + 8 * half + g;
      uint32_t pair[kExact];
      split_pair(usable(to_float(at[0])), usable(to_float(at[pitch])), pair);
      ADDER_UNROLL
      for (int part = 0; part < kExact; ++part) b[half][part][r] = pair[part];
    }
  }
}

// y += M x for a tile on the diagonal where x has what is not finite: 0 in M does not keep that
// from rows before its own. From its own row on the outputs are NaN.
template <typename T, typename Tile>
__device__ __forceinline__ void add_spoiled_inputs(float (&y)[2][4], const Tile& M, const T* x,
                                                   int pitch, int lane) {
  constexpr int kExact = PartCount<T>::kExact, kDerived = PartCount<T>::kDerived;
  uint32_t a[kDerived][4], b[2][kExact][2];
  ADDER_UNROLL
  for (int part = 0; part < kDerived; ++part) load_fragment(M.parts[part], lane, a[part]);
  load_inputs(b, x, pitch, lane, [](float v) { return 0 * v == 0 ? v : 0.0f; });
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    multiply_parts(y[half], a, b[half]);
    ADDER_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int row = e / 2 * 8 + lane / 4, column = 8 * half + lane % 4 * 2 + e % 2;
      for (int s = 0; s <= row; ++s)
        y[half][e] = fmaf(0, to_float(x[s * pitch + column]), y[half][e]);
    }
  }
}

// y += M[., column tile k] x, of 16 columns: y[row tile][column half].
template <int k, typename T, typename Tile>
__device__ __forceinline__ void add_inputs(float (&y)[kRowTiles][2][4],
                                           const Tile (&M)[kCausalTiles], const T* x, int pitch,
                                           int lane) {
  constexpr int kDerived = PartCount<T>::kDerived;
  uint32_t b[2][PartCount<T>::kExact][2];
  float zero = 0;
  load_inputs(b, x + 16 * k * pitch, pitch, lane, [&](float v) {
    zero = fmaf(0, v, zero);
    return v;
  });
  const bool finite = __all_sync(kFullMask, zero == 0);
  ADDER_UNROLL
  for (int m = k; m < kRowTiles; ++m) {
    if (m == k && !finite) {
      add_spoiled_inputs(y[m], M[causal_tile(m, k)], x + 16 * k * pitch, pitch, lane);
      continue;
    }
    uint32_t a[kDerived][4];
    ADDER_UNROLL
    for (int part = 0; part < kDerived; ++part)
      load_fragment(M[causal_tile(m, k)].parts[part], lane, a[part]);
    multiply_parts(y[m][0], a, b[0]);
    multiply_parts(y[m][1], a, b[1]);
  }
}

// What one of two warps adds to y of 64 rows and 16 columns, without D: C S^T over its half of the
// states, and M x over two column tiles of M, which are five tiles for either.
template <typename T, int N, typename Chunk, typename Tile>
__device__ __forceinline__ void make_outputs(float (&y)[kRowTiles][2][4],
                                             const float (&S)[N / 16][4], const Chunk& chunk,
                                             const Tile (&M)[kCausalTiles],
                                             const SsdDecay (&decay)[kSsdChunk], const T* x,
                                             int pitch, int share, int lane) {
  constexpr int kExact = PartCount<T>::kExact, kDerived = PartCount<T>::kDerived;
  const int g = lane / 4;
  ADDER_UNROLL
  for (int k = 0; k < N / 32; ++k) {
    uint32_t b[2][kDerived][2];
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      ADDER_UNROLL
      for (int r = 0; r < 2; ++r) {
        uint32_t pair[kDerived];
        split_pair(S[2 * k + r][2 * half], S[2 * k + r][2 * half + 1], pair);
        ADDER_UNROLL
        for (int part = 0; part < kDerived; ++part) b[half][part][r] = pair[part];
      }
    }
    ADDER_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      uint32_t a[kExact][4];
      ADDER_UNROLL
      for (int part = 0; part < kExact; ++part)
        load_fragment(chunk.C[m][share * (N / 32) + k][part], lane, a[part]);
      multiply_parts(y[m][0], a, b[0]);
      multiply_parts(y[m][1], a, b[1]);
    }
  }
  ADDER_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    const float upper = decay_from_start(decay[16 * m + g]);
    const float lower = decay_from_start(decay[16 * m + g + 8]);
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      y[m][half][0] *= upper, y[m][half][1] *= upper;
      y[m][half][2] *= lower, y[m][half][3] *= lower;
    }
  }
  if (share == 0) {
    add_inputs<0>(y, M, x, pitch, lane);
    add_inputs<3>(y, M, x, pitch, lane);
  } else {
    add_inputs<1>(y, M, x, pitch, lane);
    add_inputs<2>(y, M, x, pitch, lane);
  }
}

// The sum of two warps' outputs: each hands two row tiles over and gets the other two.
template <typename Partial>
__device__ __forceinline__ void add_outputs(float (&sum)[kOwnTiles][2][4],
                                            const float (&y)[kRowTiles][2][4], Partial& partial,
                                            int warp, int share, int lane) {
  ADDER_UNROLL
  for (int m = 0; m < kOwnTiles; ++m) {
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      float given[4];
      ADDER_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float upper = y[m][half][e], lower = y[m + kOwnTiles][half][e];
        sum[m][half][e] = share == 0 ? upper : lower;
        given[e] = share == 0 ? lower : upper;
      }
      partial[warp][m][half][lane] = make_float4(given[0], given[1], given[2], given[3]);
    }
  }
  named_barrier(1 + warp / kSharing, kSharing * kWarpSize);
  ADDER_UNROLL
  for (int m = 0; m < kOwnTiles; ++m) {
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float4 v = partial[warp ^ 1][m][half][lane];
      sum[m][half][0] += v.x, sum[m][half][1] += v.y;
      sum[m][half][2] += v.z, sum[m][half][3] += v.w;
    }
  }
}

// out = (y + D x) gated, for 16 columns from `column` of head h on and row tiles from `row_tile`
// on.
template <typename T>
__device__ __forceinline__ void write_outputs(const float (&y)[kOwnTiles][2][4], int row_tile,
                                              const FusedParams<T>& q, int64_t h, int64_t column,
                                              int64_t first, int count, const T* x, int pitch,
                                              int lane) {
  const SsdParams<T>& p = q.p;
  const int g = lane / 4, i = lane % 4;
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int c = 8 * half + 2 * i;
    const float2 skip = make_float2(ssd_skip(p, h, column + c), ssd_skip(p, h, column + c + 1));
    ADDER_UNROLL
    for (int m = 0; m < kOwnTiles; ++m) {
      ADDER_UNROLL
      for (int down = 0; down < 2; ++down) {
        const int l = 16 * (row_tile + m) + 8 * down + g;
        if (l >= count) continue;
        const float2 input = load2(x + l * pitch + c, true);
        float2 v = make_float2(fmaf(skip.x, input.x, y[m][half][2 * down]),
                               fmaf(skip.y, input.y, y[m][half][2 * down + 1]));
        if (p.z != nullptr) {
          const float2 z =
              load2(p.z + (first + l) * p.z_row + h * p.z_head + column + c, q.z_pairs);
          v.x *= silu(z.x), v.y *= silu(z.y);
        }
        store2(p.out + (first + l) * p.out_row + h * p.out_head + column + c, v, q.out_pairs);
      }
    }
  }
}

// x^T with its weights, as the left operand of the state's update: a[row tile][part].
template <typename T>
__device__ __forceinline__ void weigh_x(uint32_t (&a)[kRowTiles][PartCount<T>::kDerived][4],
                                        const SsdDecay (&decay)[kSsdChunk], const T* x, int pitch,
                                        int lane) {
  constexpr int kDerived = PartCount<T>::kDerived;
  const int g = lane / 4, i = lane % 4;
  ADDER_UNROLL
  for (int k = 0; k < kRowTiles; ++k) {
    ADDER_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int s = 16 * k + 2 * i + r / 2 * 8;
      const T* at = x + s * pitch + g + r % 2 * 8;
      uint32_t pair[kDerived];
      split_pair(to_float(at[0]) * decay[s].to_end, to_float(at[pitch]) * decay[s + 1].to_end,
                 pair);
      ADDER_UNROLL
      for (int part = 0; part < kDerived; ++part) a[k][part][r] = pair[part];
    }
  }
}

// S = total * S + a B, for a warp's half of the states. The sum over the chunk starts from 0 and is
// added once: the tensor cores may cut off what is below the last place of a sum, which must not
// pile up in the state.
template <typename T, int N, typename Chunk>
__device__ __forceinline__ void update_states(
    float (&S)[N / 16][4], const uint32_t (&a)[kRowTiles][PartCount<T>::kDerived][4],
    const Chunk& chunk, float total, int share, int lane) {
  constexpr int kExact = PartCount<T>::kExact;
  constexpr int kTogether = 2;  // tiles of 16: four sums, to hide the latency of each
  ADDER_UNROLL
  for (int n16 = 0; n16 < N / 32; n16 += kTogether) {
    float sum[2 * kTogether][4] = {};
    ADDER_UNROLL
    for (int k = 0; k < kRowTiles; ++k) {
      ADDER_UNROLL
      for (int tile = 0; tile < kTogether; ++tile) {
        uint32_t left[kExact][2], right[kExact][2];
        ADDER_UNROLL
        for (int part = 0; part < kExact; ++part) {
          uint32_t b[4];
          load_fragment(chunk.B[share * (N / 32) + n16 + tile][k][part], lane, b);
          left[part][0] = b[0], left[part][1] = b[1];
          right[part][0] = b[2], right[part][1] = b[3];
        }
        multiply_parts(sum[2 * tile], a[k], left);
        multiply_parts(sum[2 * tile + 1], a[k], right);
      }
    }
    ADDER_UNROLL
    for (int j = 0; j < 2 * kTogether; ++j) {
      ADDER_UNROLL
      for (int e = 0; e < 4; ++e) S[2 * n16 + j][e] = fmaf(total, S[2 * n16 + j][e], sum[j][e]);
    }
  }
}

}  // namespace adder::ADDER_CUDA_NS
