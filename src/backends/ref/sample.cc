#include <algorithm>
#include <vector>

#include "backends/ref/ref_ops.h"
#include "core/error.h"

namespace adder::ref {
namespace {

struct Candidate {
  int32_t id = 0;
  double weight = 0;  // a logit first, then exp(logit - largest)
};

std::vector<Candidate> penalised_logits(const float* logits, int64_t vocab_limit,
                                        const SampleParams& p) {
  std::vector<Candidate> ids(static_cast<size_t>(vocab_limit));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = {static_cast<int32_t>(i), logits[i]};
  // `recent` is a set: an id that occurs twice is penalised once, from its own logit.
  for (int32_t id : p.recent) {
    if (id >= vocab_limit) continue;
    const double logit = logits[id];
    ids[static_cast<size_t>(id)].weight =
        logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
  }
  return ids;
}

int32_t sample_row(const float* logits, int64_t vocab_limit, const SampleParams& p) {
  auto ids = penalised_logits(logits, vocab_limit, p);
  // Most probable first, lowest id first among equals (the sort is stable).
  std::stable_sort(ids.begin(), ids.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  if (p.temperature == 0) return ids[0].id;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < ids.size())
    ids.resize(static_cast<size_t>(p.top_k));
  const double largest = ids[0].weight;
  double sum = 0;
  for (Candidate& c : ids) sum += c.weight = std::exp((c.weight - largest) / p.temperature);

  size_t kept = 0;
  double kept_sum = 0;
  while (kept < ids.size() && (kept == 0 || kept_sum < p.top_p * sum))
    kept_sum += ids[kept++].weight;
  // The most probable id has weight 1, so min_p compares with the weights themselves.
  while (kept > 1 && ids[kept - 1].weight < p.min_p) --kept;
  ids.resize(kept);

  sum = 0;
  for (const Candidate& c : ids) sum += c.weight;
  double cumulative = 0;
  for (const Candidate& c : ids)
    if ((cumulative += c.weight) > p.uniform * sum) return c.id;
  return ids.back().id;
}

}  // namespace

void sample(const SampleArgs& a) {
  for (int64_t row = 0; row < a.logits.dim(0); ++row) {
    const float* logits = at(a.logits, row);
    double largest = -INFINITY;
    for (int64_t i = 0; i < a.vocab_limit && !std::isnan(largest); ++i)
      if (!(logits[i] <= largest)) largest = logits[i];  // NaN is never <=
    if (!std::isfinite(largest))
      fail(ErrorCode::kInternal, "sample: row {}: expected a finite largest logit, got {}", row,
           largest);
    const auto i = static_cast<size_t>(row);
    a.out[i] = sample_row(logits, a.vocab_limit, a.params[i]);
  }
}

}  // namespace adder::ref
