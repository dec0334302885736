// Rung (f), "FlashScan". A block has one sequence and 128 / G channels, and walks time in tiles of
// shared memory, two at a time: while one is computed the next one arrives. Of a tile, first every
// (token, channel) gets its dt and dt * u from one thread, then G lanes per channel advance 16 / G
// states each in registers, some tokens at once: exponentials do not depend on h, so they fill the
// pipes while the recurrence waits for itself. Outputs replace u in the tile and leave as whole
// vectors.
//
// G trades parallelism for work: with G lanes a single sequence of 5120 channels is 40 G blocks,
// while dt, the exchange and the loop are paid per lane. Instructions per (token, channel), added
// up over the lanes, counted in the SASS of sm_90a for bfloat16, whole groups of tokens, z given:
//
//   G                          1    2    4    8   16
//   recurrence, sum, output  117  125  140  154  266    16 states: 16 exp2, 32 mul, 16 fma;
//                                                       tree: 8 mul, 8 fma, 7 add
//   dt, dt * u                27   27   27   27   27    softplus 14
//   B, C to float32            1    3    6   11   22    once per block
//   copies, store             11   17   17   18   20
//   all                      156  172  190  210  335    at 32 lanes and one warp per clock and
//                                                       quarter SM: 4.9 to 10.5 clocks
//
// Derived for 5120 channels, 4096 tokens, one sequence on 132 SMs: G = 8 is 320 blocks, 3 on the
// fullest SM, each with a warp of 4 channels on every quarter: 3 * 4 * 4096 * 210 / 32 = 323,000
// clocks, 184 us at 1.755 GHz and 163 us at 1.98 GHz if nothing else stalls.
#pragma once

#include "backends/cuda/scan/flash_tile.cuh"
#include "backends/cuda/scan/scan_kernels.h"

namespace adder::ADDER_CUDA_NS {

template <int kCount>
__device__ __forceinline__ void load_vector(const float* from, float (&to)[kCount]) {
  if constexpr (kCount % 4 == 0) {
    for (int i = 0; i < kCount; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  } else {
    static_assert(kCount == 2);
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  }
}

template <bool kBulk>
__device__ __forceinline__ void flash_barrier() {
  if constexpr (kBulk)
    named_barrier(1, kFlashThreads);  // not with the warp that copies
  else
    __syncthreads();
}

// Tokens that a lane advances at once.
template <typename Lanes>
inline constexpr int kFlashGroup = Lanes::kLanes >= 8 && Lanes::kStates <= 2 ? 8 : 4;

// dt, dt * u, B and C of a tile as the recurrence reads them; zeros beyond its tokens (up to a
// whole group), channels and states.
template <typename T, typename Lanes>
__device__ __forceinline__ void prepare_tile(const ScanParams<T>& p, const FlashBlock& b,
                                             FlashShared<T, Lanes>& shared,
                                             const FlashTile<T, Lanes>& tile, int tokens,
                                             float bias) {
  using Tile = FlashTile<T, Lanes>;
  constexpr int kGroup = kFlashGroup<Lanes>;
  const int thread = static_cast<int>(threadIdx.x);
  const int end = (tokens + kGroup - 1) / kGroup * kGroup;
  // A thread always has the same channel, whose bias it holds, and the same states.
  static_assert(kFlashThreads % Tile::kWidth == 0);
  const int c = thread % Tile::kWidth;
  for (int t = thread / Tile::kWidth; t < end; t += kFlashThreads / Tile::kWidth) {
    const bool there = t < tokens && c < b.width;
    const float dt = scan_dt(p, to_float(tile.delta[t][c]), bias);
    const float du = dt * to_float(tile.u[t][c]);
    shared.steps[t][c] = there ? make_float2(dt, du) : make_float2(0, 0);
  }
  constexpr int kPadded = Lanes::kPadded;
  const int states = Lanes::kExact ? kPadded : static_cast<int>(p.d_state);
  for (int n = thread % kPadded; n < kPadded; n += kFlashThreads) {
    for (int t = thread / kPadded; t < end; t += (kFlashThreads + kPadded - 1) / kPadded) {
      const bool there = t < tokens && n < states;
      auto& row = shared.rows[t][n % Lanes::kLanes];
      row[0][n / Lanes::kLanes] = there ? to_float(tile.B[t][n]) : 0.0f;
      row[1][n / Lanes::kLanes] = there ? to_float(tile.C[t][n]) : 0.0f;
    }
  }
}

// A channel's recurrence through the tile.
template <typename T, typename Lanes>
__device__ __forceinline__ void advance_tile(const ScanParams<T>& p, const FlashBlock& b,
                                             const FlashShared<T, Lanes>& shared,
                                             FlashTile<T, Lanes>& tile, int tokens, float skip,
                                             Lanes& lanes) {
  constexpr int kStates = Lanes::kStates;
  constexpr int kGroup = kFlashGroup<Lanes>;
  static_assert(FlashTile<T, Lanes>::kTokens % kGroup == 0);
  const int c = static_cast<int>(threadIdx.x) / Lanes::kLanes;
  const bool writes = lanes.template owns<kGroup>() && c < b.width;
  const int first = lanes.template first_token<kGroup>();

  for (int begin = 0; begin < tokens; begin += kGroup) {
    float dt[kGroup], du[kGroup], y[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      const float2 step = shared.steps[begin + j][c];
      dt[j] = step.x, du[j] = step.y;
    }
    const auto rows = [&](int j, float(&B)[kStates], float(&C)[kStates]) {
      float both[2 * kStates];
      load_vector(&shared.rows[begin + j][lanes.lane][0][0], both);
      for (int k = 0; k < kStates; ++k) B[k] = both[k], C[k] = both[kStates + k];
    };
    if (begin + kGroup <= tokens)
      lanes.template advance<kGroup, false>(dt, du, kGroup, rows, y);
    else
      lanes.template advance<kGroup, true>(dt, du, tokens - begin, rows, y);
    lanes.reduce(y);
    if (!writes) continue;
    for (int i = 0; i < Lanes::kept(kGroup); ++i) {
      const int t = begin + first + i;
      if (t >= tokens) break;
      const float z = p.z == nullptr ? 0.0f : to_float(tile.z[t][c]);
      tile.u[t][c] = scan_output<T>(y[i], skip, to_float(tile.u[t][c]), p.z != nullptr, z);
    }
  }
}

// Blocks per SM that registers must leave room for: shared memory allows no more of the wide tiles.
// Said because the compiler spills a register or two in the hot loop for the sake of more.
template <typename Lanes>
constexpr int flash_blocks() {
  return Lanes::kStates >= 16 ? 2 : Lanes::kStates == 8 ? 3 : 4;
}

// kBulk: a warp more, which copies.
template <typename T, typename Lanes, bool kBulk>
__global__ void __launch_bounds__(kFlashThreads + (kBulk ? kWarpSize : 0), flash_blocks<Lanes>())
    flash_kernel(FlashParams<T> p) {
  using Tile = FlashTile<T, Lanes>;
  auto& shared = shared_memory<FlashShared<T, Lanes>>();
  const FlashBlock b = flash_block<Tile::kWidth>(p.scan);
  const ScanSequence& s = b.sequence;
  const int thread = static_cast<int>(threadIdx.x);
  const auto tokens_at = [&](int64_t t) {
    return static_cast<int>(min(s.length - t, int64_t{Tile::kTokens}));
  };
  if (s.slot < 0) {
    if (thread < b.width)
      for (int64_t t = s.begin; t < s.begin + s.length; ++t)
        p.scan.out[t * p.scan.out_row + b.channel + thread] = from_float<T>(0);
    return;
  }
  if (s.length == 0) return;
  if constexpr (kBulk) {
    if (thread == 0) {
      for (int i = 0; i < 2; ++i) {
        mbar_init(&shared.full[i], 1);
        mbar_init(&shared.empty[i], kFlashThreads);
      }
      fence_mbar_init();
    }
    __syncthreads();
    if (thread >= kFlashThreads) {
      unsigned i = 0;
      for (int64_t t = 0; t < s.length; t += Tile::kTokens, ++i) {
        if (i >= 2) mbar_wait(&shared.empty[i % 2], (i / 2 - 1) % 2);
        load_tile_bulk(p, b, shared.tile[i % 2], s.begin + t, tokens_at(t), &shared.full[i % 2]);
      }
      return;
    }
  } else {
    load_tile_async(p, b, shared.tile[0], s.begin, tokens_at(0));
  }

  const int c = thread / Lanes::kLanes;
  const bool exists = c < b.width;
  const int64_t d = b.channel + (exists ? c : 0);
  float* const h = p.scan.ssm_state + s.slot * p.scan.state_slot + d;
  Lanes lanes;
  lanes.load(exists, thread % Lanes::kLanes, p.scan.d_state, p.scan.A_log2e + d, p.scan.A_row, h,
             p.scan.state_row);
  const float skip = exists ? channel_or_zero(p.scan.D, d) : 0.0f;
  const int prepared = thread % Tile::kWidth;  // the channel whose dt this thread computes
  const float bias =
      prepared < b.width ? channel_or_zero(p.scan.delta_bias, b.channel + prepared) : 0.0f;

  unsigned i = 0;
  for (int64_t t = 0; t < s.length; t += Tile::kTokens, ++i) {
    Tile& tile = shared.tile[i % 2];
    const int tokens = tokens_at(t);
    if constexpr (kBulk) {
      mbar_wait(&shared.full[i % 2], i / 2 % 2);
    } else {
      cp_async_wait<0>();
      __syncthreads();  // also: everybody has stored the tile whose place the next one takes
      if (t + Tile::kTokens < s.length)
        load_tile_async(p, b, shared.tile[(i + 1) % 2], s.begin + t + Tile::kTokens,
                        tokens_at(t + Tile::kTokens));
    }
    prepare_tile(p.scan, b, shared, tile, tokens, bias);
    flash_barrier<kBulk>();
    advance_tile(p.scan, b, shared, tile, tokens, skip, lanes);
    flash_barrier<kBulk>();
    store_tile(p, b, tile, s.begin + t, tokens);
    if constexpr (kBulk) {
      fence_proxy_async();  // what was written here before what the copy engine will
      mbar_arrive(&shared.empty[i % 2]);
    }
  }
  if (exists) lanes.store(h, p.scan.state_row);
}

template <typename T, typename Lanes, bool kBulk>
void launch_flash(CudaContext& context, const FlashParams<T>& p) {
  const int64_t parts = ceil_div(p.scan.channels_per_group, FlashTile<T, Lanes>::kWidth);
  launch(context.device, flash_kernel<T, Lanes, kBulk>,
         {blocks(p.scan.n_groups * parts, p.scan.batch.n_seqs),
          dim3(kFlashThreads + (kBulk ? kWarpSize : 0)), sizeof(FlashShared<T, Lanes>)},
         p);
}

// The variant of flash_scan_bulk.cu, for 2, 4 or 8 lanes.
template <typename T>
void launch_flash_bulk(CudaContext& context, const FlashParams<T>& p, int lanes);

}  // namespace adder::ADDER_CUDA_NS
