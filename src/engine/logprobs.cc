#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace adder {

double log_sum_exp(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (float v : logits) {
    if (!(v <= largest)) largest = v;  // a NaN passes on to the sum
  }
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0.0;
  for (float v : logits) sum += std::exp(static_cast<double>(v) - static_cast<double>(largest));
  return static_cast<double>(largest) + std::log(sum);
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top) {
  const double norm = log_sum_exp(logits);
  const auto entry = [&](int32_t id) {
    return TokenLogprob{
        id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - norm)};
  };
  TokenLogprobs out{entry(token), {}};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min(ids.size(), static_cast<size_t>(top));
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(), [&](int32_t a, int32_t b) {
        const float va = logits[static_cast<size_t>(a)], vb = logits[static_cast<size_t>(b)];
        return va != vb ? va > vb : a < b;
      });
  for (size_t i = 0; i < count; ++i) out.top.push_back(entry(ids[i]));
  return out;
}

}  // namespace adder
