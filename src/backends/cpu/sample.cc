// No row is ever sorted as a whole. A lower bound of the few logits that matter comes from maxima
// of blocks; what lies above it is collected, and positions in the sorted order are found by
// selection.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>

#include "backends/cpu/ops.h"
#include "backends/cpu/sample_buckets.h"
#include "backends/cpu/sample_rows.h"
#include "core/error.h"

namespace adder {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using Candidate = SampleCandidate;

// Scratch of one row, carved from the thread's block.
struct RowScratch {
  explicit RowScratch(float* memory, int64_t vocab) {
    const int64_t n = (vocab + 15) / 16 * 16;
    weights = reinterpret_cast<double*>(memory);
    candidates = reinterpret_cast<Candidate*>(weights + n);
    logits = reinterpret_cast<float*>(candidates + 2 * n);
    maxima = logits + n;
    sorted_maxima = maxima + n;
  }
  static size_t floats(int64_t vocab) {
    const auto n = static_cast<size_t>((vocab + 15) / 16 * 16);
    return n * (sizeof(double) + 2 * sizeof(Candidate) + 3 * sizeof(float)) / sizeof(float);
  }

  double* weights;        // of `logits`
  Candidate* candidates;  // the ids in `recent`, then the others
  float* logits;          // -inf at ids in `recent`
  float* maxima;          // of blocks of `logits`
  float* sorted_maxima;
};

class RowSampler {
 public:
  RowSampler(const float* logits, int64_t n, const SampleParams& params, RowScratch scratch,
             const CpuContext& context)
      : n_(n), params_(params), scratch_(scratch), context_(context) {
    std::copy_n(logits, n, scratch_.logits);
    take_recent(logits);
    largest_ = block_maxima(scratch_.logits, n, scratch_.maxima, context);
    for (const Candidate& c : recent()) largest_ = std::max(largest_, c.logit);
  }

  int32_t draw() {
    if (params_.temperature == 0) return most_probable();
    std::span<Candidate> kept;
    if (params_.top_k > 0 && params_.top_k < n_) {
      kept = filter_top_k();
    } else {
      const double sum = weigh();
      kept = first_ids(sum);
      if (kept.empty() && params_.min_p == 0) return draw_from_many(sum);
      if (kept.empty()) kept = collect(kMinusInfinity, true);
      kept = filter(kept, sum);
    }
    if (kept.size() == 1) return kept[0].id;
    return kept[crossing(kept, params_.uniform * kept_sum_, true).index].id;
  }

 private:
  struct Crossing {
    size_t index;
    double sum;  // of the weights up to and including the index
  };

  std::span<Candidate> recent() const { return {scratch_.candidates, recent_count_}; }
  int64_t blocks() const { return (n_ + kMaximaBlock - 1) / kMaximaBlock; }
  double weight(double logit) const { return std::exp((logit - largest_) / params_.temperature); }

  // Moves the ids in `recent`, each once, out of the row. NaN marks those already moved: the row
  // itself has none.
  void take_recent(const float* logits) {
    for (const int32_t id : params_.recent) {
      if (id >= n_ || std::isnan(scratch_.logits[id])) continue;
      const double logit = logits[id];
      const double penalised =
          logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
      scratch_.logits[id] = std::numeric_limits<float>::quiet_NaN();
      scratch_.candidates[recent_count_++] = {penalised, 0, id};
    }
    for (const Candidate& c : recent()) scratch_.logits[c.id] = kMinusInfinity;
    std::sort(recent().begin(), recent().end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }

  int32_t most_probable() const {
    Candidate best{kMinusInfinity, 0, std::numeric_limits<int32_t>::max()};
    for (int64_t b = 0; b < blocks(); ++b) {
      if (!(scratch_.maxima[b] > best.logit)) continue;
      const int64_t begin = b * kMaximaBlock, end = std::min(n_, begin + kMaximaBlock);
      const float* at =
          std::find(scratch_.logits + begin, scratch_.logits + end, scratch_.maxima[b]);
      best = {scratch_.maxima[b], 0, static_cast<int32_t>(at - scratch_.logits)};
    }
    for (const Candidate& c : recent()) {
      if (before(c, best)) best = c;
    }
    return best.id;
  }

  // At least `count` ids outside `recent` have logits of at least the result (if there are so
  // many).
  float bound(int64_t count) {
    if (count > blocks()) return kMinusInfinity;
    float* sorted = scratch_.sorted_maxima;
    std::copy_n(scratch_.maxima, blocks(), sorted);
    std::nth_element(sorted, sorted + count - 1, sorted + blocks(), std::greater<>());
    return sorted[count - 1];
  }

  // Every id with a logit of at least `lowest`: a beginning of the sorted order, itself unsorted.
  std::span<Candidate> collect(double lowest, bool with_weights) {
    Candidate* const first = scratch_.candidates + recent_count_;
    Candidate* last = first;
    for (int64_t b = 0; b < blocks(); ++b) {
      if (!(scratch_.maxima[b] >= lowest)) continue;
      const int64_t end = std::min(n_, (b + 1) * kMaximaBlock);
      for (int64_t i = b * kMaximaBlock; i < end; ++i) {
        const float logit = scratch_.logits[i];
        // -inf is also what the ids in `recent` left behind.
        if (!(logit >= lowest) || (logit == kMinusInfinity && is_recent(i))) continue;
        *last++ = {logit, with_weights ? scratch_.weights[i] : 0, static_cast<int32_t>(i)};
      }
    }
    for (const Candidate& c : recent()) {
      if (c.logit >= lowest) *last++ = c;
    }
    return {first, last};
  }

  bool is_recent(int64_t id) const {
    const auto at = std::lower_bound(recent().begin(), recent().end(), id,
                                     [](const Candidate& c, int64_t i) { return c.id < i; });
    return at != recent().end() && at->id == id;
  }

  // Where the weights, in sorted order, first sum to more than `target` (strict) or at least it;
  // the last candidate if they never do. Selection by halves: about twice the number of candidates
  // in steps, instead of a sort. What lies before the index afterwards sorts before it.
  static Crossing crossing(std::span<Candidate> all, double target, bool strict) {
    size_t begin = 0, end = all.size();
    double sum = 0;  // of all before `begin`
    while (end - begin > 64) {
      const size_t middle = begin + (end - begin) / 2;
      std::nth_element(all.begin() + static_cast<ptrdiff_t>(begin),
                       all.begin() + static_cast<ptrdiff_t>(middle),
                       all.begin() + static_cast<ptrdiff_t>(end), before);
      double half = sum;
      for (size_t i = begin; i < middle; ++i) half += all[i].weight;
      if (strict ? half > target : half >= target) {
        end = middle;
      } else {
        begin = middle;
        sum = half;
      }
    }
    std::sort(all.begin() + static_cast<ptrdiff_t>(begin),
              all.begin() + static_cast<ptrdiff_t>(end), before);
    for (size_t i = begin; i < end; ++i) {
      sum += all[i].weight;
      if (strict ? sum > target : sum >= target) return {i, sum};
    }
    return {end - 1, sum};
  }

  // top_k, then top_p and min_p among those. The sums run in sorted order, like the definition's.
  std::span<Candidate> filter_top_k() {
    std::span<Candidate> kept = collect(bound(params_.top_k), false);
    const auto k = static_cast<size_t>(params_.top_k);
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(k - 1), kept.end(),
                     before);
    kept = kept.first(k);
    std::sort(kept.begin(), kept.end(), before);
    double sum = 0;
    for (Candidate& c : kept) sum += c.weight = weight(c.logit);
    size_t count = 0;
    double head = 0;
    while (count < k && (count == 0 || head < params_.top_p * sum)) head += kept[count++].weight;
    while (count > 1 && kept[count - 1].weight < params_.min_p) --count;
    kept = kept.first(count);
    kept_sum_ = 0;
    for (const Candidate& c : kept) kept_sum_ += c.weight;
    return kept;
  }

  // Weights of all ids, and their sum.
  double weigh() {
    double sum =
        exp_weights(scratch_.logits, n_, largest_, params_.temperature, scratch_.weights, context_);
    for (Candidate& c : recent()) sum += c.weight = weight(c.logit);
    return sum;
  }

  // A beginning of the sorted order, itself unsorted, that holds all that top_p, min_p and the draw
  // can need; empty when that is many ids.
  std::span<Candidate> first_ids(double sum) {
    // What the filters and the draw need is nearly always among the 256 most probable or so. What
    // lies above the bound is a beginning of the sorted order, so its sum tells whether it is; the
    // margin is far above the rounding of sums in another order.
    std::span<Candidate> kept = collect(bound(256), true);
    double head = 0, least = 1;
    for (const Candidate& c : kept) {
      head += c.weight;
      least = std::min(least, c.weight);
    }
    const double needed = (params_.top_p < 1 ? params_.top_p : params_.uniform) * sum;
    const bool decided_by_sum = params_.top_p < 1 || params_.min_p == 0;
    const bool enough = (params_.min_p > 0 && least < params_.min_p) ||
                        (decided_by_sum && head > needed * (1 + 1e-9));
    return enough ? kept : std::span<Candidate>();
  }

  int32_t draw_from_many(double sum) {
    const WeightedRow row{scratch_.logits, scratch_.weights,    n_, recent(),
                          largest_,        params_.temperature, sum};
    return draw_by_buckets(row, params_.top_p, params_.uniform,
                           reinterpret_cast<uint16_t*>(scratch_.sorted_maxima),
                           scratch_.candidates + recent_count_, context_);
  }

  // top_p and min_p of the whole row.
  std::span<Candidate> filter(std::span<Candidate> kept, double sum) {
    kept_sum_ = sum;
    if (params_.top_p < 1) {
      const Crossing end = crossing(kept, params_.top_p * sum, false);
      kept = kept.first(end.index + 1);
      kept_sum_ = end.sum;
    }
    if (params_.min_p > 0) {
      const auto end = std::partition(
          kept.begin(), kept.end(), [&](const Candidate& c) { return c.weight >= params_.min_p; });
      kept = kept.first(static_cast<size_t>(end - kept.begin()));
      kept_sum_ = 0;
      for (const Candidate& c : kept) kept_sum_ += c.weight;
    }
    return kept;
  }

  int64_t n_;
  const SampleParams& params_;
  RowScratch scratch_;
  const CpuContext& context_;
  size_t recent_count_ = 0;
  double largest_ = 0;
  double kept_sum_ = 0;
};

}  // namespace

void cpu_sample(const SampleArgs& args, CpuContext& context) {
  const int64_t vocab = args.logits.dim(1);
  context.reserve_scratch(RowScratch::floats(vocab));
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> broken{kNone};  // the first row without a finite largest logit
  context.pool.parallel_for(args.logits.dim(0), 1, [&](int64_t row, int64_t, int thread) {
    const float* logits = args.logits.ptr<const float>() + row * args.logits.stride[0];
    const RowScratch scratch(context.scratch(thread), vocab);
    if (!std::isfinite(block_maxima(logits, args.vocab_limit, scratch.maxima, context))) {
      int64_t first = broken.load();
      while (row < first && !broken.compare_exchange_weak(first, row)) {
      }
      return;
    }
    const auto i = static_cast<size_t>(row);
    args.out[i] = RowSampler(logits, args.vocab_limit, args.params[i], scratch, context).draw();
  });
  if (broken.load() != kNone) {
    const int64_t row = broken.load();
    fail(ErrorCode::kInternal, "sample: row {}: expected a finite largest logit, got NaN or Inf",
         row);
  }
}

}  // namespace adder
