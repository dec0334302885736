// Tiles of FlashScan: so many tokens of the channels of a block in shared memory, as they lie in
// global memory, and how they come and go.
#pragma once

#include "backends/cuda/scan/scan_lanes.cuh"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kFlashThreads = 128;  // that compute

template <typename T, typename Lanes>
struct FlashTile {
  static constexpr int kWidth = kFlashThreads / Lanes::kLanes;  // channels
  // Narrow tiles are long, since what is done once per tile costs the same; wide ones short, so
  // that two blocks fit on an SM of sm_80.
  static constexpr int kTokens = Lanes::kPadded != 16 ? 16
                                 : Lanes::kLanes < 4  ? 16
                                                      : 8 * Lanes::kLanes;

  // u becomes the output.
  alignas(16) T u[kTokens][kWidth], delta[kTokens][kWidth], z[kTokens][kWidth];
  alignas(16) T B[kTokens][Lanes::kPadded], C[kTokens][Lanes::kPadded];
};

template <typename T, typename Lanes>
struct FlashShared {
  using Tile = FlashTile<T, Lanes>;
  Tile tile[2];
  // dt and dt * u; B and C in float32, those of a lane together so that it reads whole vectors.
  alignas(16) float2 steps[Tile::kTokens][Tile::kWidth];
  alignas(16) float rows[Tile::kTokens][Lanes::kLanes][2][Lanes::kStates];
  alignas(8) uint64_t full[2], empty[2];  // for bulk copies only
};

template <typename T>
struct FlashParams {
  ScanParams<T> scan;
  bool aligned;  // all rows begin at multiples of 16 bytes
};

// What a block works on: channels [channel, channel + width) of one group, and one sequence.
struct FlashBlock {
  int64_t channel, group;
  int width;
  ScanSequence sequence;
};

template <int kWidth, typename T>
__device__ __forceinline__ FlashBlock flash_block(const ScanParams<T>& p) {
  const int64_t parts = (p.channels_per_group + kWidth - 1) / kWidth;
  const int64_t group = blockIdx.x / parts, first = blockIdx.x % parts * kWidth;
  return {group * p.channels_per_group + first, group,
          static_cast<int>(min(p.channels_per_group - first, int64_t{kWidth})),
          scan_sequence(p, blockIdx.y)};
}

// Calls copy(tile rows, first row in memory, distance of its rows, elements of a row) for each
// operand of the tile that begins at row t.
template <typename T, typename Lanes, typename Copy>
__device__ __forceinline__ void for_tile_operands(const ScanParams<T>& p, const FlashBlock& b,
                                                  FlashTile<T, Lanes>& tile, int64_t t,
                                                  Copy&& copy) {
  const int states = Lanes::kExact ? Lanes::kPadded : static_cast<int>(p.d_state);
  copy(tile.delta, p.delta + t * p.delta_row + b.channel, p.delta_row, b.width);
  copy(tile.u, p.u + t * p.u_row + b.channel, p.u_row, b.width);
  copy(tile.B, p.B + t * p.B_row + b.group * p.B_group, p.B_row, states);
  copy(tile.C, p.C + t * p.C_row + b.group * p.C_group, p.C_row, states);
  if (p.z != nullptr) copy(tile.z, p.z + t * p.z_row + b.channel, p.z_row, b.width);
}

// By all of the threads that compute. Without alignment a tile is there at once.
template <typename T, typename Lanes>
__device__ __forceinline__ void load_tile_async(const FlashParams<T>& p, const FlashBlock& b,
                                                FlashTile<T, Lanes>& tile, int64_t t, int tokens) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto copy = [&]<int kRows, int kPitch>(T(&to)[kRows][kPitch], const T* from, int64_t row,
                                               int count) {
    constexpr int kPer = 16 / sizeof(T), kChunks = kPitch / kPer;
    static_assert(kPitch % kPer == 0 && kFlashThreads % kChunks == 0);
    if (p.aligned) {
      // A thread always has the same chunk of a row.
      const int at = thread % kChunks * kPer, bytes = min(count - at, kPer) * int{sizeof(T)};
      if (bytes <= 0) return;
      constexpr int kStep = kFlashThreads / kChunks;
      const T* source = from + thread / kChunks * row + at;
      for (int r = thread / kChunks; r < tokens; r += kStep, source += kStep * row)
        cp_async<16>(&to[r][at], source, bytes);
    } else {
      for (int i = thread; i < tokens * kPitch; i += kFlashThreads) {
        const int r = i / kPitch, at = i % kPitch;
        if (at < count) to[r][at] = from[r * row + at];
      }
    }
  };
  for_tile_operands(p.scan, b, tile, t, copy);
  cp_async_commit();
}

// By one whole warp: a copy per row, which completes on `full`. Only aligned rows of whole chunks.
template <typename T, typename Lanes>
__device__ __forceinline__ void load_tile_bulk(const FlashParams<T>& p, const FlashBlock& b,
                                               FlashTile<T, Lanes>& tile, int64_t t, int tokens,
                                               uint64_t* full) {
  const int lane = lane_id();
  const int per_row = (p.scan.z == nullptr ? 2 : 3) * b.width + 2 * Lanes::kPadded;
  if (lane == 0) mbar_arrive_expect(full, tokens * per_row * int{sizeof(T)});
  __syncwarp();  // no byte may arrive before it is expected
  const auto copy = [&]<int kRows, int kPitch>(T(&to)[kRows][kPitch], const T* from, int64_t row,
                                               int count) {
    for (int r = lane; r < tokens; r += kWarpSize)
      bulk_copy(to[r], from + r * row, count * int{sizeof(T)}, full);
  };
  for_tile_operands(p.scan, b, tile, t, copy);
}

// tile.u to memory.
template <typename T, typename Lanes>
__device__ __forceinline__ void store_tile(const FlashParams<T>& p, const FlashBlock& b,
                                           const FlashTile<T, Lanes>& tile, int64_t t, int tokens) {
  constexpr int kPitch = FlashTile<T, Lanes>::kWidth, kPer = 16 / sizeof(T);
  constexpr int kChunks = kPitch / kPer, kStep = kFlashThreads / kChunks;
  const int first = static_cast<int>(threadIdx.x) / kChunks;
  const int at = static_cast<int>(threadIdx.x) % kChunks * kPer;
  const bool whole = p.aligned && at + kPer <= b.width;
  T* to = p.scan.out + (t + first) * p.scan.out_row + b.channel + at;
  for (int r = first; r < tokens; r += kStep, to += kStep * p.scan.out_row) {
    if (whole) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&tile.u[r][at]);
    } else {
      for (int k = 0; k < min(kPer, b.width - at); ++k) to[k] = tile.u[r][at + k];
    }
  }
}

}  // namespace adder::ADDER_CUDA_NS
