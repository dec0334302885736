// Choosing a token from one row of logits (kernels/sample.h) by one thread block.
//
// Every filter keeps a prefix of the order (value descending, id ascending). So top_k, top_p and
// the draw itself are one question each: at which id does a sum along that order, of ones or of
// weights, reach a threshold? A histogram names the bucket in which it does; when the bucket has
// few ids they are compared with one another, else it is divided further, at last by id.
//
// Sums are of integers, so that atomics give the same bits in any order. A weight exp((v - largest)
// / temperature), at most 1, is held in units of 2^-S with S = 63 - ceil(log2(vocab_limit)),
// rounded to nearest: a sum of all of them fits 64 bits. Against float64 sums of exact weights, a
// sum of n weights is off by at most n * 2^-(S + 1), which for 50280 ids is 2^-32 of a total that
// is at least 1, and by 2^-47 for the rounding of each exponent and exponential.
#pragma once

#include "backends/cuda/arch.cuh"
#include "backends/cuda/sample/sample_params.h"

namespace adder::ADDER_CUDA_NS {

constexpr int kSampleBuckets = 1024;
constexpr int kSampleFew = 256;  // so many ids are compared pair by pair
constexpr int kSampleMaxWarps = 16;

using SampleSum = unsigned long long;  // the type that 64-bit atomics take

struct SampleHistogram {
  SampleSum sum[kSampleBuckets];
  int count[kSampleBuckets];
};

// Where the sum along the order reaches the threshold.
struct SampleFound {
  SampleSum key;
  SampleSum sum;  // up to this id and with it
  int32_t id;
};

struct SampleBucket {
  SampleSum before;  // the sum of all buckets before it
  int index, count;
};

struct SampleShared {
  SampleHistogram first, deeper;
  SampleSum few_key[kSampleFew], few_term[kSampleFew];
  SampleSum warp_sum[kSampleMaxWarps];
  SampleSum largest_key, lowest_key, total, likely;
  SampleFound found;
  SampleBucket bucket;
  int32_t few_id[kSampleFew];
  int few;
  unsigned raw_largest;
  int32_t largest_id;
};

// ---- Keys: integers in the order of the values ----

__device__ __forceinline__ SampleSum order_key(double v) {
  const auto bits = static_cast<SampleSum>(__double_as_longlong(v));
  return bits >> 63 != 0 ? ~bits : bits | SampleSum{1} << 63;
}
__device__ __forceinline__ double key_value(SampleSum key) {
  return __longlong_as_double(
      static_cast<long long>(key >> 63 != 0 ? key & ~(SampleSum{1} << 63) : ~key));
}
// NaN above everything.
__device__ __forceinline__ unsigned order_key(float v) {
  if (v != v) return 0xffffffffu;
  const unsigned bits = __float_as_uint(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float key_value(unsigned key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// The part of the order that is divided next.
struct SampleRange {
  int bucket = -1;  // of the first histogram; -1: any
  SampleSum low = 0, high = ~SampleSum{0};
  int32_t first_id = 0, last_id = 0x7fffffff;
};

// The least shift after which 0 to `span` are bucket numbers.
__device__ __forceinline__ int bucket_shift(SampleSum span) {
  int shift = 0;
  while (span >> shift >= kSampleBuckets) ++shift;
  return shift;
}

// One row and what is asked of it, the same in every thread.
class RowSampler {
 public:
  // `penalised`: memory for a bit per id.
  __device__ RowSampler(const float* logits, int32_t vocab_limit, const SampleRow& row,
                        const RecentIds& recent, unsigned* penalised)
      : s_(shared_memory<SampleShared>()),
        logits_(logits),
        limit_(vocab_limit),
        row_(row),
        threads_(static_cast<int>(blockDim.x)),
        thread_(static_cast<int>(threadIdx.x)) {
    if (row.repeat_penalty != 1.0f && recent.count > 0) mark(recent, penalised);
  }

  // The answer, in every thread.
  __device__ SampledToken sample() {
    find_largest();
    const float raw = key_value(s_.raw_largest);
    // NaN, which fails every comparison, and both infinities.
    if (!(raw > -kInfinity && raw < kInfinity)) return {0, raw};
    if (row_.temperature == 0.0f) return {s_.largest_id, raw};
    int32_t n = limit_;
    if (row_.top_k > 0 && row_.top_k < limit_) {
      n = row_.top_k;
      prepare(limit_);
      const SampleFound last = find(limit_, static_cast<SampleSum>(n));
      last_key_ = last.key;
      last_id_ = last.id;
    }
    weigh();
    prepare(n);
    SampleSum kept = s_.likely;
    if (row_.top_p < 1.0f) {
      const double part = ceil(static_cast<double>(row_.top_p) * static_cast<double>(s_.total));
      const SampleSum least = max(static_cast<SampleSum>(part), SampleSum{1});
      kept = min(kept, find(n, min(least, s_.total)).sum);
    }
    // The first sum that exceeds uniform * kept; uniform is below 1 by at least 2^-24.
    const double part = static_cast<double>(row_.uniform) * static_cast<double>(kept);
    return {find(n, static_cast<SampleSum>(part) + 1).id, raw};
  }

 private:
  static constexpr float kInfinity = __builtin_huge_valf();
  // exp(-44) is below 2^-63: from here on every weight is 0 in fixed point.
  static constexpr double kNegligible = 44;

  // ---- Values ----

  __device__ void mark(const RecentIds& recent, unsigned* penalised) {
    const int words = (limit_ + 31) / 32;
    for (int i = thread_; i < words; i += threads_) penalised[i] = 0;
    __syncthreads();
    for (int i = thread_; i < recent.count; i += threads_) {
      const int32_t id = recent.ids[(recent.first + i) % recent.capacity];
      if (id < limit_) atomicOr(&penalised[id / 32], 1u << (id % 32));
    }
    __syncthreads();
    penalised_ = penalised;
  }

  __device__ double value(int32_t id, float raw) const {
    double v = raw;
    if (penalised_ != nullptr && (penalised_[id / 32] >> (id % 32) & 1) != 0) {
      const double penalty = row_.repeat_penalty;
      v = v > 0 ? v / penalty : v * penalty;
    }
    return v + 0.0;  // -0 and 0 are equal
  }

  // visit(id, logit) for the thread's share of the ids, in their order. Several are read ahead: a
  // single block has too few threads to hide the latency of one read after another.
  template <typename Visit>
  __device__ void for_each_logit(const Visit& visit) const {
    constexpr int kAhead = 8;
    for (int64_t begin = thread_; begin < limit_; begin += int64_t{kAhead} * threads_) {
      float raw[kAhead];
      for (int k = 0; k < kAhead; ++k) {
        const int64_t id = begin + k * threads_;
        raw[k] = id < limit_ ? logits_[id] : 0.0f;
      }
      for (int k = 0; k < kAhead; ++k) {
        const int64_t id = begin + k * threads_;
        if (id < limit_) visit(static_cast<int32_t>(id), raw[k]);
      }
    }
  }
  template <typename Visit>
  __device__ void for_each(const Visit& visit) const {
    for_each_logit([&](int32_t id, float raw) { visit(id, value(id, raw)); });
  }

  __device__ void find_largest() {
    if (thread_ == 0) {
      s_.largest_key = 0;
      s_.lowest_key = ~SampleSum{0};
      s_.raw_largest = 0;
      s_.largest_id = limit_;
    }
    __syncthreads();
    SampleSum largest = 0, lowest = ~SampleSum{0};
    unsigned raw_largest = 0;
    int32_t largest_id = limit_;
    const SampleSum masked = order_key(-static_cast<double>(kInfinity));
    for_each_logit([&](int32_t id, float raw) {
      raw_largest = max(raw_largest, order_key(raw));
      const SampleSum key = order_key(value(id, raw));
      if (key > largest) largest = key, largest_id = id;
      if (key > masked) lowest = min(lowest, key);
    });
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
      const SampleSum key = __shfl_xor_sync(kFullMask, largest, lanes);
      const int32_t id = __shfl_xor_sync(kFullMask, largest_id, lanes);
      if (key > largest || (key == largest && id < largest_id)) largest = key, largest_id = id;
      lowest = min(lowest, __shfl_xor_sync(kFullMask, lowest, lanes));
      raw_largest = max(raw_largest, __shfl_xor_sync(kFullMask, raw_largest, lanes));
    }
    const bool leads = thread_ % kWarpSize == 0;
    if (leads) {
      atomicMax(&s_.largest_key, largest);
      atomicMin(&s_.lowest_key, lowest);
      atomicMax(&s_.raw_largest, raw_largest);
    }
    __syncthreads();
    if (leads && largest == s_.largest_key) atomicMin(&s_.largest_id, largest_id);
    __syncthreads();
    largest_ = key_value(s_.largest_key);
    span_ = largest_ - key_value(s_.lowest_key);
    bucket_scale_ = span_ > 0 ? (kSampleBuckets - 1) / span_ : 0.0;
  }

  // From here on terms are weights and no longer ones.
  __device__ void weigh() {
    weighs_ = true;
    inverse_temperature_ = 1.0 / static_cast<double>(row_.temperature);
    int log2_limit = 0;
    while ((int64_t{1} << log2_limit) < limit_) ++log2_limit;
    unit_ = static_cast<double>(SampleSum{1} << (63 - log2_limit));
    span_ = min(span_, kNegligible * static_cast<double>(row_.temperature));
    bucket_scale_ = span_ > 0 ? (kSampleBuckets - 1) / span_ : 0.0;
  }

  // What an id adds to the sum.
  __device__ SampleSum term(double v) const {
    bool likely = false;
    return term(v, &likely);
  }
  __device__ SampleSum term(double v, bool* likely) const {
    *likely = true;
    if (!weighs_) return 1;
    const double x = (v - largest_) * inverse_temperature_;
    const double weight = x < -kNegligible ? 0.0 : exp(x);
    *likely = weight >= static_cast<double>(row_.min_p);
    return static_cast<SampleSum>(weight * unit_ + 0.5);
  }

  // ---- Parts of the order ----

  // Rises along the order, since every operation here is monotone. -inf comes into the last bucket.
  __device__ int first_bucket(double v) const {
    const double below = largest_ - v;
    return below < span_ ? static_cast<int>(below * bucket_scale_) : kSampleBuckets - 1;
  }
  __device__ bool kept(SampleSum key, int32_t id) const {
    return key > last_key_ || (key == last_key_ && id <= last_id_);
  }
  __device__ bool within(const SampleRange& r, int32_t id, double v, SampleSum key) const {
    return key >= r.low && key <= r.high && id >= r.first_id && id <= r.last_id && kept(key, id) &&
           (r.bucket < 0 || first_bucket(v) == r.bucket);
  }

  // Makes ready for find(): the few ids themselves, or the first histogram; and the sums over all.
  __device__ void prepare(int32_t n) {
    if (thread_ == 0) s_.total = s_.likely = 0;
    if (n <= kSampleFew) {
      collect({});
      SampleSum total = 0, likely_sum = 0;
      for (int i = thread_; i < s_.few; i += threads_) {
        bool likely = false;
        term(key_value(s_.few_key[i]), &likely);
        total += s_.few_term[i];
        if (likely) likely_sum += s_.few_term[i];
      }
      add_totals(total, likely_sum);
      return;
    }
    clear(s_.first);
    SampleSum total = 0, likely_sum = 0;
    for_each([&](int32_t id, double v) {
      if (!kept(order_key(v), id)) return;
      bool likely = false;
      const SampleSum mine = term(v, &likely);
      total += mine;
      if (likely) likely_sum += mine;
      add(s_.first, first_bucket(v), mine);
    });
    add_totals(total, likely_sum);
  }

  __device__ static SampleSum warp_total(SampleSum v) {
    for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
      v += __shfl_xor_sync(kFullMask, v, lanes);
    return v;
  }
  __device__ void add_totals(SampleSum total, SampleSum likely) {
    total = warp_total(total);
    likely = warp_total(likely);
    if (thread_ % kWarpSize == 0) {
      atomicAdd(&s_.total, total);
      atomicAdd(&s_.likely, likely);
    }
    __syncthreads();
  }

  __device__ void clear(SampleHistogram& h) {
    for (int i = thread_; i < kSampleBuckets; i += threads_) h.sum[i] = 0, h.count[i] = 0;
    __syncthreads();
  }
  __device__ static void add(SampleHistogram& h, int bucket, SampleSum term) {
    if (term != 0) atomicAdd(&h.sum[bucket], term);
    atomicAdd(&h.count[bucket], 1);
  }

  // The bucket in which the sum reaches `threshold`, which is from 1 to the whole sum.
  __device__ SampleBucket locate(const SampleHistogram& h, SampleSum threshold) {
    const int warps = threads_ / kWarpSize, warp = thread_ / kWarpSize, lane = thread_ % kWarpSize;
    const int begin = kSampleBuckets / warps * warp, end = begin + kSampleBuckets / warps;
    SampleSum mine = 0;
    for (int i = begin + lane; i < end; i += kWarpSize) mine += h.sum[i];
    mine = warp_total(mine);
    if (lane == 0) s_.warp_sum[warp] = mine;
    __syncthreads();
    SampleSum before = 0;
    for (int i = 0; i < warp; ++i) before += s_.warp_sum[i];
    if (before < threshold && threshold - before <= mine) {
      for (int i = begin + lane; i < end; i += kWarpSize) {
        SampleSum upto = h.sum[i];
        for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
          const SampleSum left = __shfl_up_sync(kFullMask, upto, lanes);
          if (lane >= lanes) upto += left;
        }
        const SampleSum here = before + upto;
        if (here >= threshold && here - h.sum[i] < threshold)
          s_.bucket = {here - h.sum[i], i, h.count[i]};
        before += __shfl_sync(kFullMask, upto, kWarpSize - 1);
      }
    }
    __syncthreads();
    return s_.bucket;
  }

  // Copies the ids of a range that has at most kSampleFew of them.
  __device__ void collect(const SampleRange& r) {
    if (thread_ == 0) s_.few = 0;
    __syncthreads();
    for_each([&](int32_t id, double v) {
      const SampleSum key = order_key(v);
      if (!within(r, id, v, key)) return;
      const int i = atomicAdd(&s_.few, 1);
      s_.few_key[i] = key;
      s_.few_term[i] = term(v);
      s_.few_id[i] = id;
    });
    __syncthreads();
  }

  // Which of the collected ids it is.
  __device__ SampleFound rank(SampleSum before, SampleSum threshold) {
    const int n = s_.few;
    for (int i = thread_; i < n; i += threads_) {
      const SampleSum key = s_.few_key[i];
      const int32_t id = s_.few_id[i];
      SampleSum sum = before;
      for (int j = 0; j < n; ++j)
        if (s_.few_key[j] > key || (s_.few_key[j] == key && s_.few_id[j] < id))
          sum += s_.few_term[j];
      const SampleSum upto = sum + s_.few_term[i];
      if (sum < threshold && upto >= threshold) s_.found = {key, upto, id};
    }
    __syncthreads();
    const SampleFound found = s_.found;
    __syncthreads();
    return found;
  }

  // The same ids, with the least and the largest of their keys as limits.
  __device__ SampleRange tighten(SampleRange r) {
    __syncthreads();
    if (thread_ == 0) s_.lowest_key = ~SampleSum{0}, s_.largest_key = 0;
    __syncthreads();
    SampleSum low = ~SampleSum{0}, high = 0;
    for_each([&](int32_t id, double v) {
      const SampleSum key = order_key(v);
      if (!within(r, id, v, key)) return;
      low = min(low, key);
      high = max(high, key);
    });
    atomicMin(&s_.lowest_key, low);
    atomicMax(&s_.largest_key, high);
    __syncthreads();
    r.bucket = -1;
    r.low = s_.lowest_key;
    r.high = s_.largest_key;
    r.last_id = min(r.last_id, limit_ - 1);
    return r;
  }

  // The sum along the order, over the `n` kept ids that prepare() has seen, reaches `threshold`
  // here.
  __device__ SampleFound find(int32_t n, SampleSum threshold) {
    if (n <= kSampleFew) return rank(0, threshold);
    SampleBucket at = locate(s_.first, threshold);
    SampleSum before = at.before;
    SampleRange r;
    r.bucket = at.index;
    while (at.count > kSampleFew) {
      r = tighten(r);
      const bool by_id = r.low == r.high;
      const auto ids = static_cast<SampleSum>(r.last_id - r.first_id);
      const int shift = bucket_shift(by_id ? ids : r.high - r.low);
      clear(s_.deeper);
      for_each([&](int32_t id, double v) {
        const SampleSum key = order_key(v);
        if (!within(r, id, v, key)) return;
        const SampleSum offset = by_id ? static_cast<SampleSum>(id - r.first_id) : r.high - key;
        add(s_.deeper, static_cast<int>(offset >> shift), term(v));
      });
      __syncthreads();
      at = locate(s_.deeper, threshold - before);
      before += at.before;
      const SampleSum from = static_cast<SampleSum>(at.index) << shift;
      const SampleSum to = from + ((SampleSum{1} << shift) - 1);
      if (by_id) {
        if (to < ids) r.last_id = r.first_id + static_cast<int32_t>(to);
        r.first_id += static_cast<int32_t>(from);
      } else {
        if (to < r.high - r.low) r.low = r.high - to;
        r.high -= from;
      }
    }
    collect(r);
    return rank(before, threshold);
  }

  SampleShared& s_;
  const float* logits_;
  int32_t limit_;
  SampleRow row_;
  int threads_, thread_;
  const unsigned* penalised_ = nullptr;  // a bit per id; null: none
  double largest_ = 0, span_ = 0, bucket_scale_ = 0, inverse_temperature_ = 0, unit_ = 0;
  bool weighs_ = false;
  // The last id that top_k keeps.
  SampleSum last_key_ = 0;
  int32_t last_id_ = 0x7fffffff;
};

}  // namespace adder::ADDER_CUDA_NS
