#include "backends/cpu/sample_buckets.h"

#include <algorithm>
#include <array>

#include "backends/cpu/sample_rows.h"

namespace adder {
namespace {

// 64 buckets for every factor e of probability, down to e^-32: a row of 50,000 logits that are
// spread like a bell has some hundreds in each.
constexpr int kBuckets = 2048;
constexpr double kPerTemperature = kBuckets / 32.0;

class Buckets {
 public:
  Buckets(const WeightedRow& row, uint16_t* bucket_of, SampleCandidate* scratch,
          const CpuContext& context)
      : row_(row), bucket_of_(bucket_of), scratch_(scratch) {
    bucket_indices(row.logits, row.n, row.largest, row.temperature, kPerTemperature, kBuckets - 1,
                   bucket_of, context);
    for (int64_t i = 0; i < row.n; ++i) sums_[bucket_of[i]] += row.weights[i];
    for (const SampleCandidate& c : row.recent)
      sums_[static_cast<size_t>(index(c.logit))] += c.weight;
  }

  struct Position {
    int32_t id;
    int bucket;
    size_t index;  // in the sorted bucket
    double sum;    // of the weights up to and including it
  };

  // Where the weights, in sorted order, first sum to more than `target` (strict) or at least it;
  // the last id if they never do.
  Position reach(double target, bool strict) {
    const auto reached = [&](double sum) { return strict ? sum > target : sum >= target; };
    Position last{0, 0, 0, 0};
    double sum = 0;
    for (int b = 0; b < kBuckets; ++b) {
      const double with_bucket = sum + sums_[static_cast<size_t>(b)];
      // The last bucket is looked into in any case. An empty one sums to no more than before, yet
      // a bucket of weights that underflow does so too.
      if (!reached(with_bucket) && b + 1 < kBuckets) {
        sum = with_bucket;
        continue;
      }
      const std::span<SampleCandidate> all = sorted(b);
      for (size_t i = 0; i < all.size(); ++i) {
        sum += all[i].weight;
        last = {all[i].id, b, i, sum};
        if (reached(sum)) return last;
      }
    }
    return last;
  }

 private:
  static constexpr int64_t kScan = 32;  // ids that are looked through at once
  static bool any_in(const uint16_t* buckets, int bucket) {
    uint16_t found = 0;
    for (int64_t i = 0; i < kScan; ++i) found |= buckets[i] == bucket;
    return found != 0;
  }

  int index(double logit) const {
    return static_cast<int>(std::min<double>(
        (row_.largest - logit) / row_.temperature * kPerTemperature, kBuckets - 1));
  }

  std::span<SampleCandidate> sorted(int bucket) {
    SampleCandidate* end = scratch_;
    auto skip = row_.recent.begin();
    for (int64_t begin = 0; begin < row_.n; begin += kScan) {
      const int64_t stop = std::min(row_.n, begin + kScan);
      if (stop - begin == kScan && !any_in(bucket_of_ + begin, bucket)) continue;
      for (int64_t i = begin; i < stop; ++i) {
        if (bucket_of_[i] != bucket) continue;
        while (skip != row_.recent.end() && skip->id < i) ++skip;
        if (skip != row_.recent.end() && skip->id == i) continue;
        *end++ = {row_.logits[i], row_.weights[i], static_cast<int32_t>(i)};
      }
    }
    for (const SampleCandidate& c : row_.recent) {
      if (index(c.logit) == bucket) *end++ = c;
    }
    std::sort(scratch_, end, before);
    return {scratch_, end};
  }

  const WeightedRow& row_;
  uint16_t* bucket_of_;
  SampleCandidate* scratch_;
  std::array<double, kBuckets> sums_{};
};

}  // namespace

int32_t draw_by_buckets(const WeightedRow& row, double top_p, double uniform, uint16_t* bucket_of,
                        SampleCandidate* scratch, const CpuContext& context) {
  Buckets buckets(row, bucket_of, scratch, context);
  if (top_p >= 1) return buckets.reach(uniform * row.sum, true).id;
  const auto end = buckets.reach(top_p * row.sum, false);
  const auto drawn = buckets.reach(uniform * end.sum, true);
  // Sums of sums round differently from sums of weights: never beyond the end.
  const bool beyond =
      drawn.bucket != end.bucket ? drawn.bucket > end.bucket : drawn.index > end.index;
  return beyond ? end.id : drawn.id;
}

}  // namespace adder
