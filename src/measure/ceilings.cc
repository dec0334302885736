#include "measure/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

namespace adder {

const LoopRate& Ceiling::best() const {
  return *std::max_element(loops.begin(), loops.end(), [](const LoopRate& a, const LoopRate& b) {
    return a.rate.median < b.rate.median;
  });
}

std::string_view limit_name(Limit limit) {
  switch (limit) {
    case Limit::kMemoryRead:
      return "memory read";
    case Limit::kL3Read:
      return "L3 read";
    case Limit::kL2Read:
      return "L2 read";
    case Limit::kFma:
      return "float32 multiply-add";
    case Limit::kInt8:
      return "int8 multiply-add";
    case Limit::kExp2:
      return "float32 exp2";
  }
  return "?";
}

std::string_view limit_unit(Limit limit) {
  switch (limit) {
    case Limit::kMemoryRead:
    case Limit::kL3Read:
    case Limit::kL2Read:
      return "GB/s";
    case Limit::kFma:
      return "GFLOP/s";
    case Limit::kInt8:
    case Limit::kExp2:
      return "GOP/s";
  }
  return "?";
}

std::vector<Ceiling> measure_ceilings(MachineProbe& probe, int samples, double seconds,
                                      const std::function<void(const std::string&)>& progress) {
  std::vector<Ceiling> ceilings;
  for (const Limit limit : kLimits) {
    const std::vector<std::string> names = probe.loops(limit);
    std::vector<std::vector<double>> rates(names.size());
    for (size_t i = 0; i < names.size(); ++i) probe.measure(limit, i, 0);  // warm-up
    for (int sample = 0; sample < samples; ++sample) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (progress) {
          progress(fmt::format("{}, {} thread{}: {}, {} of {}", limit_name(limit), probe.threads(),
                               probe.threads() == 1 ? "" : "s", names[i], sample + 1, samples));
        }
        rates[i].push_back(probe.measure(limit, i, seconds));
      }
    }
    Ceiling ceiling{limit, {}};
    for (size_t i = 0; i < names.size(); ++i) {
      ceiling.loops.push_back({names[i], spread_of(std::move(rates[i]))});
    }
    ceilings.push_back(std::move(ceiling));
  }
  return ceilings;
}

CeilingSampler::CeilingSampler(MachineProbe& probe) : probe_(probe) {
  std::vector<std::vector<double>> rates(probe.loops(Limit::kMemoryRead).size());
  for (int sample = 0; sample < 4; ++sample) {  // the first one only touches the memory
    for (size_t i = 0; i < rates.size(); ++i) {
      const double rate = probe.measure(Limit::kMemoryRead, i, 0.01);
      if (sample > 0) rates[i].push_back(rate);
    }
  }
  double best = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double median = spread_of(rates[i]).median;
    if (median <= best) continue;
    best = median;
    read_loop_ = i;
  }
}

void CeilingSampler::sample() {
  for (const Limit limit : kLimits) {
    const size_t loop = limit == Limit::kMemoryRead ? read_loop_ : 0;
    samples_[limit].push_back(probe_.measure(limit, loop, 0.02));
  }
}

LimitRates CeilingSampler::rates() const {
  LimitRates rates;
  for (const auto& [limit, samples] : samples_) rates[limit] = spread_of(samples).median;
  return rates;
}

}  // namespace adder
