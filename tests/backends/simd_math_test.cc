// The vector functions of the CPU backend against double, on every instruction set that can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/fast_exp-inl.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

// Applies one function to a multiple of 16 numbers, with whole vectors or with one lane at a time.
template <class F>
void Apply(F function, const float* x, float* y, size_t count, bool one_lane) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  if (one_lane) {
    for (size_t i = 0; i < count; ++i) hn::StoreU(function(d1, hn::LoadU(d1, x + i)), d1, y + i);
  } else {
    for (size_t i = 0; i < count; i += hn::Lanes(d))
      hn::StoreU(function(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void Exp2NonPositiveArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Exp2NonPositive(d, v); }, x, y, count, one_lane);
}
void Exp2Array(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Exp2(d, v); }, x, y, count, one_lane);
}
void ExpNonPositiveArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return ExpNonPositive(d, v); }, x, y, count, one_lane);
}
void Log1pUnitArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Log1pUnit(d, v); }, x, y, count, one_lane);
}
void SoftplusArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Softplus(d, v); }, x, y, count, one_lane);
}
void SigmoidArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Sigmoid(d, v); }, x, y, count, one_lane);
}
void SiluArray(const float* x, float* y, size_t count, bool one_lane) {
  Apply([](auto d, auto v) HWY_ATTR { return Silu(d, v); }, x, y, count, one_lane);
}

// FastExp has no form for one lane.
template <class F>
void ApplyFast(F function, const float* x, float* y, size_t count) {
  const hn::ScalableTag<float> d;
  float constants[64];
  FillExpConstants(constants);
  const FastExp<hn::ScalableTag<float>> exp(d, constants);
  for (size_t i = 0; i < count; i += hn::Lanes(d))
    hn::StoreU(function(d, exp, hn::LoadU(d, x + i)), d, y + i);
}

void FastExp2Array(const float* x, float* y, size_t count, bool) {
  const auto function = [](auto d, const auto& exp, auto v) HWY_ATTR {
    decltype(v) values[1] = {v};
    exp.template Exp2<true>(d, values);
    return values[0];
  };
  ApplyFast(function, x, y, count);
}
void FastExp2InsideArray(const float* x, float* y, size_t count, bool) {
  const auto function = [](auto d, const auto& exp, auto v) HWY_ATTR {
    decltype(v) values[1] = {v};
    exp.template Exp2<false>(d, values);
    return values[0];
  };
  ApplyFast(function, x, y, count);
}
void FastExpArray(const float* x, float* y, size_t count, bool) {
  ApplyFast([](auto d, const auto& exp, auto v) HWY_ATTR { return exp.Exp(d, v); }, x, y, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "backends/cpu/isa.h"

namespace adder {
namespace {

HWY_EXPORT(Exp2NonPositiveArray);
HWY_EXPORT(Exp2Array);
HWY_EXPORT(ExpNonPositiveArray);
HWY_EXPORT(Log1pUnitArray);
HWY_EXPORT(SoftplusArray);
HWY_EXPORT(SigmoidArray);
HWY_EXPORT(SiluArray);
HWY_EXPORT(FastExp2Array);
HWY_EXPORT(FastExp2InsideArray);
HWY_EXPORT(FastExpArray);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

using ArrayFunction = void (*)(const float*, float*, size_t, bool);

double softplus(double v) {
  return v > 20 ? v : std::log1p(std::exp(v));
}
double sigmoid(double v) {
  return 1 / (1 + std::exp(-v));
}
double silu(double v) {
  return v / (1 + std::exp(-v));
}
double exp2_of(double v) {
  return std::exp2(v);
}
double exp_of(double v) {
  return std::exp(v);
}
double log1p_of(double v) {
  return std::log1p(v);
}

struct Function {
  const char* name;
  ArrayFunction (*on)(const Isa& isa);
  double (*exact)(double);
  float lowest, highest;  // range of the stated bound
  double bound;           // relative, as stated in simd_math-inl.h
  // Below this a result may be anything that is not larger: exp gives 0 below 2^-126, and silu
  // multiplies that 0 by up to 88.
  double flushed = kSmallestNormal;
  bool nan = true;  // NaN gives NaN
};

struct Context {
  const Isa& isa;
};

const Function kFunctions[] = {
    {"Exp2NonPositive",
     [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, Exp2NonPositiveArray); },
     exp2_of, -kInf, 0.0f, 2e-7},
    {"Exp2", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, Exp2Array); }, exp2_of,
     -kInf, kInf, 2e-7},
    {"ExpNonPositive",
     [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, ExpNonPositiveArray); }, exp_of,
     -kInf, 0.0f, 3e-7},
    {"Log1pUnit", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, Log1pUnitArray); },
     log1p_of, 0.0f, 1.0f, 3e-7},
    {"Softplus", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, SoftplusArray); },
     softplus, -kInf, kInf, 5e-7},
    {"Sigmoid", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, SigmoidArray); },
     sigmoid, -kInf, kInf, 5e-7},
    {"Silu", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, SiluArray); }, silu,
     std::numeric_limits<float>::lowest(), kInf, 6e-7, 88 * kSmallestNormal},
    {"FastExp2", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, FastExp2Array); },
     exp2_of, -kInf, 0.0f, 2e-7, kSmallestNormal, false},
    {"FastExp2Inside",
     [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, FastExp2InsideArray); }, exp2_of,
     -127.0f, 0.0f, 2e-7, kSmallestNormal, false},
    {"FastExp", [](const Isa& isa) { return &ADDER_CPU_DISPATCH(Context{isa}, FastExpArray); },
     exp_of, -kInf, 0.0f, 3e-7},
};

// Every `stride`-th bit pattern in the function's range, NaN included.
void sweep(const Function& function, const Isa& isa, uint64_t stride) {
  constexpr size_t kBatch = 4096;
  const ArrayFunction run = function.on(isa);
  std::vector<float> x, y(kBatch);
  double worst = 0;
  float worst_at = 0;
  int64_t wrong = 0;
  const auto flush = [&] {
    x.resize(kBatch, x.back());
    run(x.data(), y.data(), kBatch, false);
    for (size_t i = 0; i < kBatch; ++i) {
      const double want = function.exact(x[i]);
      if (std::isnan(want)) {
        wrong += !std::isnan(y[i]);
      } else if (std::abs(want) < function.flushed) {
        wrong += !(std::abs(y[i]) <= function.flushed);
      } else if (std::abs(want) > std::numeric_limits<float>::max()) {
        wrong += y[i] != (want > 0 ? kInf : -kInf);
      } else {
        const double error = std::abs(y[i] - want) / std::abs(want);
        if (!(error <= worst)) worst = error, worst_at = x[i];
      }
    }
    x.clear();
  };
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride) {
    const auto low = static_cast<uint32_t>(bits);
    float v;
    std::memcpy(&v, &low, sizeof v);
    if (std::isnan(v) ? !function.nan : !(v >= function.lowest && v <= function.highest)) continue;
    x.push_back(v);
    if (x.size() == kBatch) flush();
  }
  if (!x.empty()) flush();
  EXPECT_EQ(wrong, 0) << function.name << " on " << isa.name;
  EXPECT_LE(worst, function.bound) << function.name << " on " << isa.name << " at " << worst_at;
  ::testing::Test::RecordProperty(std::string(function.name) + "_" + std::string(isa.name),
                                  std::to_string(worst * 1e9));
}

TEST(SimdMath, HoldsItsBoundsOverAllMagnitudes) {
  // An odd stride: 4 million patterns that meet every exponent and all trailing bits.
  for (const Isa& isa : runnable_isas())
    for (const Function& function : kFunctions) sweep(function, isa, 1021);
}

// The decays of the scans: every float32 that is not positive. Most of them need no double to be
// judged: from -127 on the result is 0, and closer to 0 than 2^-25 it is 1 (2^x is nearer to 1 than
// to the next float below).
TEST(SimdMath, Exp2HoldsItsBoundForEveryFloat) {
  constexpr uint32_t kBatch = 4096, kFirst = 0x80000000, kEnd = 0xFF800000;  // -0 to -inf
  const Isa isa = choose_isa("");
  std::vector<float> x(kBatch), y(kBatch);
  for (const Function& function : kFunctions) {
    if (std::string(function.name) != "FastExp2" && std::string(function.name) != "Exp2NonPositive")
      continue;
    const ArrayFunction run = function.on(isa);
    double worst = 0;
    int64_t wrong = 0;
    for (uint32_t first = kFirst; first < kEnd; first += kBatch) {
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t bits = first + i;
        std::memcpy(&x[i], &bits, sizeof bits);
      }
      run(x.data(), y.data(), kBatch, false);
      // Magnitudes rise within a batch.
      if (x.front() <= -127 || x.back() > -0x1p-25f) {
        const float want = x.front() <= -127 ? 0.0f : 1.0f;
        for (const float got : y) wrong += got != want;
        continue;
      }
      for (uint32_t i = 0; i < kBatch; ++i) {
        const double want = std::exp2(double{x[i]});
        if (want < kSmallestNormal) {
          wrong += !(y[i] >= 0 && y[i] <= kSmallestNormal);
        } else {
          const double error = std::abs(y[i] - want) / want;
          if (!(error <= worst)) worst = error;
        }
      }
    }
    const float inf = -kInf;
    std::fill(x.begin(), x.end(), inf);
    run(x.data(), y.data(), kBatch, false);
    for (const float got : y) wrong += got != 0;
    EXPECT_EQ(wrong, 0) << function.name << " on " << isa.name;
    EXPECT_LE(worst, function.bound) << function.name << " on " << isa.name;
    RecordProperty(function.name, std::to_string(worst * 1e9));
  }
}

// Every float32 of every range, in minutes: ctest --preset ci -C slow -L slow
TEST(SimdMath, DISABLED_HoldsItsBoundsForEveryFloat) {
  const Isa isa = choose_isa("");
  for (const Function& function : kFunctions) sweep(function, isa, 1);
}

TEST(SimdMath, GivesExactValuesAtTheEdges) {
  for (const Isa& isa : runnable_isas()) {
    SCOPED_TRACE(isa.name);
    const auto at = [&isa](const char* name, float x) {
      for (const Function& f : kFunctions) {
        if (std::string(name) != f.name) continue;
        const std::vector<float> in(16, x);
        std::vector<float> out(16);
        f.on(isa)(in.data(), out.data(), 16, false);
        return out[15];
      }
      return kNaN;
    };
    for (const char* exp2_name : {"Exp2NonPositive", "Exp2", "FastExp2"}) {
      EXPECT_EQ(at(exp2_name, 0.0f), 1.0f);
      EXPECT_EQ(at(exp2_name, -1.0f), 0.5f);
      EXPECT_EQ(at(exp2_name, -126.0f), std::numeric_limits<float>::min());
      for (const float x : {-127.0f, -128.0f, -1e5f, -3e38f, -kInf}) EXPECT_EQ(at(exp2_name, x), 0);
    }
    EXPECT_EQ(at("Exp2", 127.0f), std::ldexp(1.0f, 127));
    for (const float x : {128.0f, 1e5f, kInf}) EXPECT_EQ(at("Exp2", x), kInf);
    for (const char* exp_name : {"ExpNonPositive", "FastExp"}) {
      EXPECT_EQ(at(exp_name, 0.0f), 1.0f);
      EXPECT_EQ(at(exp_name, -kInf), 0.0f);
    }
    EXPECT_EQ(at("Softplus", 100.0f), 100.0f);
    EXPECT_EQ(at("Softplus", kInf), kInf);
    EXPECT_EQ(at("Softplus", -100.0f), 0.0f);
    EXPECT_EQ(at("Silu", 0.0f), 0.0f);
    EXPECT_EQ(at("Silu", 100.0f), 100.0f);
    EXPECT_EQ(at("Silu", -1e30f), 0.0f);
    EXPECT_EQ(at("Sigmoid", -kInf), 0.0f);
    EXPECT_EQ(at("Sigmoid", kInf), 1.0f);
  }
}

// Kernels handle the last few channels one lane at a time and must not see other bits there.
TEST(SimdMath, OneLaneGivesTheBitsOfAWholeVector) {
  std::vector<float> x(1 << 14), whole(x.size()), single(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = (static_cast<float>(i) - 8192.0f) * 0.0137f;  // -112 .. 112
  for (const Isa& isa : runnable_isas()) {
    for (const Function& f : kFunctions) {
      if (f.highest <= 1) continue;  // half of x lies outside the range
      f.on(isa)(x.data(), whole.data(), x.size(), false);
      f.on(isa)(x.data(), single.data(), x.size(), true);
      EXPECT_EQ(std::memcmp(whole.data(), single.data(), x.size() * sizeof(float)), 0)
          << f.name << " on " << isa.name;
    }
  }
}

}  // namespace
}  // namespace adder
#endif  // HWY_ONCE
