// Chunks of a sequence, and the decays of one chunk of one head.
//
// With a(r) = dt(r) * A_log2e <= 0 and sum(r) = a(0) + ... + a(r), row s still weighs
// 2^(sum(l) - sum(s)) at row l >= s. Sums reach 1e4 and more where the differences that matter are
// below 1, so they are made in float64 and kept as two float32: (high(l) - high(s)) + (low(l) -
// low(s)) errs by 2^-24 of the difference. A difference is never positive but for rounding; it is
// clamped, and entries with s > l are masked before the exponential.
#pragma once

#include "backends/cuda/ssd/ssd_params.cuh"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kSsdChunk = static_cast<int>(kSsdChunkAlign);

// The first chunk slot of a sequence, such that no two sequences share one: a sequence of a rows
// has at most floor(a / 64) + 1 chunks.
template <typename T>
__device__ __forceinline__ int64_t first_chunk_slot(const SsdParams<T>& p, int64_t sequence) {
  return p.batch.seq_start[sequence] / kSsdChunk + sequence;
}
inline int64_t chunk_slots(const DeviceBatch& batch) {
  return batch.n_tokens / kSsdChunk + batch.n_seqs;
}

struct alignas(16) SsdDecay {
  float high, low;  // sum(r)
  float dt;         // after bias, softplus and limits
  float to_end;     // dt(r) 2^(sum(last) - sum(r))
};

// 2^(sum(l) - sum(s)) for s <= l. NaN stays NaN.
__device__ __forceinline__ float decay_between(const SsdDecay& l, const SsdDecay& s) {
  const float difference = (l.high - s.high) + (l.low - s.low);
  return ex2(difference > 0 ? 0.0f : difference);
}
// From before the chunk to row r.
__device__ __forceinline__ float decay_from_start(const SsdDecay& r) {
  return ex2(r.high + r.low);
}

// Of `count` rows from `first` on, by one warp: two rows per lane, and a scan over the lanes.
template <typename T>
__device__ __forceinline__ void chunk_decays(const SsdParams<T>& p, int64_t h, int64_t first,
                                             int count, SsdDecay* to) {
  static_assert(kSsdChunk == 2 * kWarpSize);
  const int lane = lane_id();
  const double A_log2e = p.A_log2e[h];
  float dt[2];
  double sum[2], last = 0;
  for (int half = 0; half < 2; ++half) {
    const int r = half * kWarpSize + lane;
    dt[half] = r < count ? ssd_dt(p, first + r, h) : 0.0f;
    sum[half] = r < count ? dt[half] * A_log2e : 0.0;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const double before = __shfl_up_sync(kFullMask, sum[half], static_cast<unsigned>(distance));
      if (lane >= distance) sum[half] += before;
    }
    sum[half] += last;
    last = __shfl_sync(kFullMask, sum[half], kWarpSize - 1);
  }
  for (int half = 0; half < 2; ++half) {
    const int r = half * kWarpSize + lane;
    if (r >= count) continue;
    const auto high = static_cast<float>(sum[half]);
    to[r] = {high, static_cast<float>(sum[half] - high), dt[half],
             ex2(static_cast<float>(last - sum[half])) * dt[half]};
  }
}

}  // namespace adder::ADDER_CUDA_NS
