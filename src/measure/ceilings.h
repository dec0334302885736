// What this machine can do at most, measured.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/registry.h"
#include "measure/statistics.h"

namespace adder {

struct LoopRate {
  std::string loop;
  Spread rate;  // units per second
};

struct Ceiling {
  Limit limit;
  std::vector<LoopRate> loops;

  const LoopRate& best() const;  // the loop with the largest median
};

// "memory read", "L3 read", ...; "GB/s", "GFLOP/s", ...: of 10^9 units per second.
std::string_view limit_name(Limit limit);
std::string_view limit_unit(Limit limit);

// Units per second of each limit (backends/registry.h).
class LimitRates {
 public:
  double& operator[](Limit limit) { return rates_[static_cast<size_t>(limit)]; }
  double operator[](Limit limit) const { return rates_[static_cast<size_t>(limit)]; }

 private:
  std::array<double, std::size(kLimits)> rates_{};
};

// Each loop of each limit `samples` times for `seconds` each, the loops in turn, so that a
// disturbance falls on all of them alike. progress: called with a line before each sample.
std::vector<Ceiling> measure_ceilings(MachineProbe& probe, int samples, double seconds,
                                      const std::function<void(const std::string&)>& progress);

// The ceilings alone, sampled again and again between other measurements.
class CeilingSampler {
 public:
  // Finds the fastest way to read memory.
  explicit CeilingSampler(MachineProbe& probe);
  void sample();             // of every limit, a tenth of a second in all
  LimitRates rates() const;  // medians of the samples; 0 before the first

 private:
  MachineProbe& probe_;
  size_t read_loop_ = 0;
  std::map<Limit, std::vector<double>> samples_;
};

}  // namespace adder
