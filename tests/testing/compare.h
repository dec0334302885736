// Comparisons that report how much, where, got and want.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "testing/tolerances.h"

namespace adder::testing {

namespace detail {

// How far outside its tolerance an element is: at most 1 passes. An infinity must be the same one,
// and NaN never passes, not even against NaN: a test that expects it says so by itself.
inline double excess(double got, double want, const Tolerance& tolerance) {
  if (got == want) return 0;
  if (!std::isfinite(got) || !std::isfinite(want)) return std::numeric_limits<double>::infinity();
  const double bar = tolerance.atol + tolerance.rtol * std::abs(want);
  return bar > 0 ? std::abs(got - want) / bar : std::numeric_limits<double>::infinity();
}

}  // namespace detail

template <typename Got, typename Want>
::testing::AssertionResult close(const std::vector<Got>& got, const std::vector<Want>& want,
                                 const Tolerance& tolerance) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure()
           << fmt::format("expected {} elements, got {}", want.size(), got.size());
  size_t bad = 0, worst = 0;
  double worst_excess = 0, error = 0, power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    const double e = detail::excess(g, w, tolerance);
    bad += e > 1;
    if (e > worst_excess) worst_excess = e, worst = i;
    if (std::isfinite(g) && std::isfinite(w)) error += (g - w) * (g - w), power += w * w;
  }
  if (bad > 0)
    return ::testing::AssertionFailure() << fmt::format(
               "{} of {} elements outside {:g} + {:g} * |want|; worst at {}, {:g} times "
               "the bar: got {:.9g}, want {:.9g}",
               bad, got.size(), tolerance.atol, tolerance.rtol, worst, worst_excess,
               static_cast<double>(got[worst]), static_cast<double>(want[worst]));
  if (error > tolerance.nmse * power)
    return ::testing::AssertionFailure() << fmt::format(
               "normalised mean square error {:g} above {:g}; worst at {}: got {:.9g}, "
               "want {:.9g}",
               error / power, tolerance.nmse, worst, static_cast<double>(got[worst]),
               static_cast<double>(want[worst]));
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bits(std::span<const float> got,
                                            std::span<const float> want) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure()
           << fmt::format("expected {} elements, got {}", want.size(), got.size());
  size_t bad = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;)
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) ++bad, first = i;
  if (bad == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "{} of {} elements differ in their bits; first at {}: got {:.9g} ({:08x}), "
             "want {:.9g} ({:08x})",
             bad, got.size(), first, got[first], std::bit_cast<uint32_t>(got[first]), want[first],
             std::bit_cast<uint32_t>(want[first]));
}

inline bool all_finite(std::span<const float> values) {
  for (float v : values)
    if (!std::isfinite(v)) return false;
  return true;
}

}  // namespace adder::testing
