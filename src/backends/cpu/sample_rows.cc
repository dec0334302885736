#include "backends/cpu/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/sample_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float BlockMaxima(const float* x, int64_t n, float* maxima) {
  const hn::CappedTag<float, kMaximaBlock> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, kMaximaBlock>()));
  float largest = -std::numeric_limits<float>::infinity();
  auto any_nan = hn::Zero(d);  // becomes NaN with the first NaN and stays so
  int64_t begin = 0;
  for (; begin + kMaximaBlock <= n; begin += kMaximaBlock) {
    auto block = hn::LoadU(d, x + begin);
    any_nan = hn::IfThenElse(hn::IsNaN(block), block, any_nan);
    for (int64_t i = kLanes; i < kMaximaBlock; i += kLanes) {
      const auto v = hn::LoadU(d, x + begin + i);
      any_nan = hn::IfThenElse(hn::IsNaN(v), v, any_nan);
      block = hn::Max(block, v);
    }
#if HWY_TARGET == HWY_EMU128
    // Highway 1.0.3 starts this target's reduction at the lowest finite value, which hides -inf.
    float lanes[hn::MaxLanes(hn::CappedTag<float, kMaximaBlock>())];
    hn::StoreU(block, d, lanes);
    const float maximum = *std::max_element(lanes, lanes + kLanes);
#else
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, block));
#endif
    maxima[begin / kMaximaBlock] = maximum;
    largest = std::max(largest, maximum);
  }
  float nan = hn::GetLane(hn::SumOfLanes(d, any_nan));
  if (begin < n) {
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t i = begin; i < n; ++i) {
      if (std::isnan(x[i])) nan = x[i];
      maximum = std::max(maximum, x[i]);
    }
    maxima[begin / kMaximaBlock] = maximum;
    largest = std::max(largest, maximum);
  }
  return std::isnan(nan) ? nan : largest;
}

double ExpWeights(const float* x, int64_t n, double largest, double temperature, double* weights) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<double>()));
  const auto max = hn::Set(d, largest), t = hn::Set(d, temperature);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i));
    const auto w = hn::Exp(d, hn::Div(hn::Sub(v, max), t));
    hn::StoreU(w, d, weights + i);
    sum = hn::Add(sum, w);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += weights[i] = std::exp((x[i] - largest) / temperature);
  return total;
}

void BucketIndices(const float* x, int64_t n, double largest, double temperature, double scale,
                   uint16_t last, uint16_t* buckets) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  const hn::Rebind<int32_t, hn::ScalableTag<double>> d32;
  const hn::Rebind<uint16_t, hn::ScalableTag<double>> d16;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<double>()));
  const auto max = hn::Set(d, largest), t = hn::Set(d, temperature), s = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i));
    const auto at = hn::Min(hn::Mul(hn::Div(hn::Sub(max, v), t), s), hn::Set(d, last));
    hn::StoreU(hn::DemoteTo(d16, hn::DemoteTo(d32, at)), d16, buckets + i);
  }
  for (; i < n; ++i) {
    buckets[i] =
        static_cast<uint16_t>(std::min<double>((largest - x[i]) / temperature * scale, last));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(BlockMaxima);
HWY_EXPORT(ExpWeights);
HWY_EXPORT(BucketIndices);

float block_maxima(const float* x, int64_t n, float* maxima, const CpuContext& context) {
  return ADDER_CPU_DISPATCH(context, BlockMaxima)(x, n, maxima);
}
double exp_weights(const float* x, int64_t n, double largest, double temperature, double* weights,
                   const CpuContext& context) {
  return ADDER_CPU_DISPATCH(context, ExpWeights)(x, n, largest, temperature, weights);
}
void bucket_indices(const float* x, int64_t n, double largest, double temperature, double scale,
                    uint16_t last, uint16_t* buckets, const CpuContext& context) {
  ADDER_CPU_DISPATCH(context, BucketIndices)(x, n, largest, temperature, scale, last, buckets);
}

}  // namespace adder
#endif
