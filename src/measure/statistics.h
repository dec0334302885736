// The clock of measurements, and the median and spread of repeated ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace adder {

inline double seconds_now() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

struct Spread {
  double median = 0, min = 0, max = 0;
};

// Of at least one value.
inline Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

// Seconds for `amount` units as units per second: the fastest run is the largest rate.
inline Spread rate_of(double amount, const Spread& seconds) {
  return {amount / seconds.median, amount / seconds.max, amount / seconds.min};
}

}  // namespace adder
