// The arithmetic of the register kernels, in one place so that every one of them gives the same
// bits: kLanes neighbouring lanes of a warp share a channel, and lane g holds the states g, g +
// kLanes, g + 2 kLanes, ... of kStates * kLanes, a power of two (states beyond d_state are 0).
//
// Whatever kLanes is, state n is computed alike, and y is summed by one fixed tree: with P states
// first n and n + P/2 (one product into the other, an fma), then n and n + P/4, ... Upper levels of
// the tree lie within a lane, lower ones are exchanges of lanes; addition commutes.
#pragma once

#include "backends/cuda/scan/scan_kernels.h"
#include "backends/cuda/scan/scan_params.cuh"

namespace adder::ADDER_CUDA_NS {

// 2^x by the FMA units: 2e-7 relative, for x <= 0 and, so that a negative step does no harm, for
// all x up to 128 (from there on +inf). Below -126 some number in [0, 2^-126], from -127 on 0. A
// NaN is lost, but it is in dt * u as well. Degree 5, minimax in relative error with p(0) = 1:
// 9.2e-8; the constants are those of backends/cpu/simd_math-inl.h.
__device__ __forceinline__ float exp2_fma(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  x = fminf(fmaxf(x, -127.0f), 128.0f);
  const float shifted = x + kMagic;
  x -= shifted - kMagic;
  float p = fmaf(0.00132647273f, x, 0.00967151299f);
  p = fmaf(p, x, 0.0555073358f);
  p = fmaf(p, x, 0.240222424f);
  p = fmaf(p, x, 0.693147004f);
  p = fmaf(p, x, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

// kExact: d_state is kStates * kLanes. kFma: the exponentials of the last quarter of the states, n
// >= 3P/4, by exp2_fma.
template <int kStateCount, int kLaneCount, bool kExactStates, bool kFmaQuarter>
struct ScanLanes {
  static constexpr int kStates = kStateCount, kLanes = kLaneCount, kPadded = kStates * kLanes;
  static constexpr bool kExact = kExactStates, kFma = kFmaQuarter;
  static_assert(kStates == 1 || kStates == 2 || kStates % 4 == 0);
  static_assert((kPadded & (kPadded - 1)) == 0 && kLanes <= 16);
  static_assert(!kFma || kStates > 1);

  int lane;     // within the channel
  int present;  // states of this lane that exist
  float A[kStates], h[kStates];
  float A_fma, A_unit;  // with two states and kFma: see decays()

  // A and h: the channel's columns, if there is such a channel. Called by whole warps.
  __device__ __forceinline__ void load(bool exists, int lane_in_channel, int64_t d_state,
                                       const float* A_column, int64_t A_row, const float* h_column,
                                       int64_t h_row) {
    lane = lane_in_channel;
    present = kExact ? kStates : (static_cast<int>(d_state) - lane + kLanes - 1) / kLanes;
    for (int k = 0; k < kStates; ++k) {
      const bool there = exists && (kExact || k < present);
      const int64_t n = lane + k * kLanes;
      A[k] = there ? A_column[n * A_row] : 0.0f;
      h[k] = there ? h_column[n * h_row] : 0.0f;
    }
    if constexpr (kFma && kStates == 2) {
      const float other = __shfl_xor_sync(kFullMask, A[1], kLanes / 2);
      A_fma = upper() ? A[1] : other;
      A_unit = upper() ? other : A[1];
    }
  }
  __device__ __forceinline__ void store(float* h_column, int64_t h_row) const {
    for (int k = 0; k < kStates; ++k)
      if (kExact || k < present) h_column[(lane + k * kLanes) * h_row] = h[k];
  }

  // kTokens tokens, of which the first `count` count if kPartial. rows(j, B, C) gives token j's B
  // and C of this lane's states. y[j]: this lane's part of the sum, for reduce().
  template <int kTokens, bool kPartial, typename Rows>
  __device__ __forceinline__ void advance(const float (&dt)[kTokens], const float (&du)[kTokens],
                                          int count, Rows&& rows, float (&y)[kTokens]) {
    float decay[kTokens][kStates];
    decays(dt, decay);
    for (int j = 0; j < kTokens; ++j) {
      float B[kStates], C[kStates];
      rows(j, B, C);
      for (int k = 0; k < kStates; ++k) {
        const float next = fmaf(decay[j][k], h[k], du[j] * B[k]);
        const bool there = kExact || k < present;
        if (!kPartial || j < count) h[k] = there ? next : 0.0f;
      }
      y[j] = weigh(C);
    }
  }

  // ---- The sum over lanes. Tokens are split as well: a lane keeps half of them at each level ----

  static constexpr int kFirstExchange = kStates == 1 ? kLanes / 4 : kLanes / 2;
  static constexpr int kept(int tokens) {
    for (int lanes = kFirstExchange; lanes > 0 && tokens > 1; lanes /= 2) tokens /= 2;
    return tokens;
  }
  // Afterwards y[0], ..., y[kept(kTokens) - 1] are the sums of the tokens from first_token() on.
  template <int kTokens>
  __device__ __forceinline__ void reduce(float (&y)[kTokens]) const {
    exchange<kFirstExchange, kTokens>(y);
  }
  template <int kTokens>
  __device__ __forceinline__ int first_token() const {
    int token = 0, half = kTokens / 2;
    for (int lanes = kFirstExchange; lanes > 0; lanes /= 2, half /= 2)
      if ((lane & lanes) != 0) token += half;
    return token;
  }
  // Of the lanes that have the same sums, one.
  template <int kTokens>
  __device__ __forceinline__ bool owns() const {
    int half = kTokens / 2;
    bool owner = kStates > 1 || lane < (kLanes + 1) / 2;
    for (int lanes = kFirstExchange; lanes > 0; lanes /= 2, half /= 2)
      if (half == 0 && (lane & lanes) != 0) owner = false;
    return owner;
  }

 private:
  __device__ __forceinline__ bool upper() const { return lane >= kLanes / 2; }

  // With four states or more, the last quarter of a lane's own are the last quarter of all. With
  // two, they are the second state of the upper half of the lanes: so that no lane waits for
  // another kind of exponential, a lower lane takes one of its partner's two tokens over and gives
  // one of its own away.
  template <int kTokens>
  __device__ __forceinline__ void decays(const float (&dt)[kTokens],
                                         float (&decay)[kTokens][kStates]) const {
    constexpr int kOnUnit = kFma ? kStates - kStates / 4 : kStates;
    if constexpr (!kFma || kStates >= 4) {
      for (int j = 0; j < kTokens; ++j)
        for (int k = 0; k < kStates; ++k)
          decay[j][k] = k < kOnUnit ? ex2(dt[j] * A[k]) : exp2_fma(dt[j] * A[k]);
    } else {
      static_assert(kTokens % 2 == 0);
      for (int j = 0; j < kTokens; j += 2) {
        decay[j][0] = ex2(dt[j] * A[0]);
        decay[j + 1][0] = ex2(dt[j + 1] * A[0]);
        const float fma = exp2_fma((upper() ? dt[j + 1] : dt[j]) * A_fma);
        const float unit = ex2((upper() ? dt[j] : dt[j + 1]) * A_unit);
        decay[j][1] = __shfl_xor_sync(kFullMask, upper() ? unit : fma, kLanes / 2);
        decay[j + 1][1] = upper() ? fma : unit;
      }
    }
  }

  // The levels of the tree within the lane.
  __device__ __forceinline__ float weigh(const float (&C)[kStates]) const {
    if constexpr (kStates == 1) {
      const float product = C[0] * h[0];
      return fmaf(C[0], h[0], __shfl_xor_sync(kFullMask, product, kLanes / 2));
    } else {
      float sum[kStates / 2];
      for (int k = 0; k < kStates / 2; ++k)
        sum[k] = fmaf(C[k], h[k], C[k + kStates / 2] * h[k + kStates / 2]);
      return fold<kStates / 2>(sum);
    }
  }
  template <int kCount>
  static __device__ __forceinline__ float fold(const float (&v)[kCount]) {
    if constexpr (kCount == 1) {
      return v[0];
    } else {
      float sum[kCount / 2];
      for (int k = 0; k < kCount / 2; ++k) sum[k] = v[k] + v[k + kCount / 2];
      return fold<kCount / 2>(sum);
    }
  }

  template <int kMask, int kCount, int kTokens>
  __device__ __forceinline__ void exchange(float (&y)[kTokens]) const {
    if constexpr (kMask > 0 && kCount > 1) {
      constexpr int kHalf = kCount / 2;
      const bool up = (lane & kMask) != 0;
      for (int i = 0; i < kHalf; ++i) {
        const float give = up ? y[i] : y[i + kHalf], keep = up ? y[i + kHalf] : y[i];
        y[i] = keep + __shfl_xor_sync(kFullMask, give, kMask);
      }
      exchange<kMask / 2, kHalf>(y);
    } else if constexpr (kMask > 0) {
      y[0] += __shfl_xor_sync(kFullMask, y[0], kMask);
      exchange<kMask / 2, 1>(y);
    }
  }
};

// By the number of states: run(ScanLanes<...>{}) with all of a channel's states in one lane.
template <typename F>
void with_unrolled_states(int64_t d_state, F&& run) {
  if (d_state <= 8) return run(ScanLanes<8, 1, false, kFmaInProduction>{});
  if (d_state < 16) return run(ScanLanes<16, 1, false, kFmaInProduction>{});
  return run(ScanLanes<16, 1, true, kFmaInProduction>{});
}

}  // namespace adder::ADDER_CUDA_NS
