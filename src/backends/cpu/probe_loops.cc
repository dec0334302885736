#include "backends/cpu/probe_loops.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/probe_loops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/fast_exp-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// kStreams equal parts of the memory are read side by side, kVectors vectors of each at a time.
template <int kStreams, int kVectors, bool kPrefetch>
HWY_INLINE float ReadStreams(const float* memory, int64_t floats) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kAhead = 1024;  // floats: 4 KB, the reach of a page
  VF sum[kStreams * kVectors];
  for (VF& s : sum) s = hn::Zero(d);
  const int64_t part = floats / kStreams;
  for (int64_t i = 0; i < part; i += kVectors * lanes) {
#pragma GCC unroll 16
    for (int s = 0; s < kStreams; ++s) {
      const float* p = memory + s * part + i;
      if (kPrefetch) {
#pragma GCC unroll 16
        for (int64_t line = 0; line < kVectors * lanes; line += 16) {
          hwy::Prefetch(p + kAhead + line);
        }
      }
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[s * kVectors + v] = hn::Add(sum[s * kVectors + v], hn::LoadU(d, p + v * lanes));
      }
    }
  }
  VF total = sum[0];
  for (int i = 1; i < kStreams * kVectors; ++i) total = hn::Add(total, sum[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

#if HWY_TARGET <= HWY_AVX3
using Int32s = __m512i;
HWY_INLINE Int32s AddProducts(Int32s sum, Int32s a, Int32s b) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway 1.0.3 compiles this target without avx512vnni, though it asks the CPU for it.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#endif
  const __m512i pairs = _mm512_maddubs_epi16(a, b);
  return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
HWY_INLINE Int32s Bytes(int8_t value) {
  return _mm512_set1_epi8(value);
}
HWY_INLINE int32_t AnyLane(Int32s v) {
  return _mm512_cvtsi512_si32(v);
}
#elif HWY_TARGET == HWY_AVX2
using Int32s = __m256i;
HWY_INLINE Int32s AddProducts(Int32s sum, Int32s a, Int32s b) {
  const __m256i pairs = _mm256_maddubs_epi16(a, b);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
HWY_INLINE Int32s Bytes(int8_t value) {
  return _mm256_set1_epi8(value);
}
HWY_INLINE int32_t AnyLane(Int32s v) {
  return _mm256_cvtsi256_si32(v);
}
#endif

}  // namespace

float ProbeRead(ReadLoop loop, const float* memory, int64_t floats) {
  switch (loop) {
    case ReadLoop::kFourStreams:
      return ReadStreams<4, 2, false>(memory, floats);
    case ReadLoop::kPrefetch:
      return ReadStreams<1, 8, true>(memory, floats);
    case ReadLoop::kOneStream:
      break;
  }
  return ReadStreams<1, 8, false>(memory, floats);
}

ProbeWork ProbeFma(int64_t iterations) {
  const DF d;
  // 12 chains cover the latency of an FMA (4 clocks) on two pipes and leave registers for a and b.
  constexpr int kChains = 12;
  VF sum[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, 1.0f + static_cast<float>(i));
  // Towards b / (1 - a), far from denormal numbers and from infinity.
  VF a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(sum[i], a, b);
  }
  VF total = sum[0];
  for (int i = 1; i < kChains; ++i) total = hn::Add(total, sum[i]);
  return {2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations),
          hn::GetLane(hn::SumOfLanes(d, total))};
}

ProbeWork ProbeInt8(int64_t iterations) {
  constexpr int kChains = 8;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  Int32s sum[kChains], a = Bytes(3), b = Bytes(-2);
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) sum[i] = Bytes(static_cast<int8_t>(i));
  for (int64_t n = 0; n < iterations; ++n) {
    // Opaque to the compiler, which would otherwise compute the product once.
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) sum[i] = AddProducts(sum[i], a, b);
  }
  int32_t total = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) total ^= AnyLane(sum[i]);
  constexpr double kBytes = sizeof(Int32s);
#else
  // Other instruction sets: widened to int16, products of which sum in pairs.
  const hn::ScalableTag<int16_t> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  auto a = hn::Set(d16, int16_t{3}), b = hn::Set(d16, int16_t{-2});
  hn::Vec<decltype(d32)> sum[kChains], odd[kChains];
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) sum[i] = odd[i] = hn::Set(d32, i);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      sum[i] = hn::ReorderWidenMulAccumulate(d32, a, b, sum[i], odd[i]);
    }
    a = hn::Xor(a, b);
  }
  int32_t total = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) total ^= hn::GetLane(hn::Xor(sum[i], odd[i]));
  const auto kBytes = static_cast<double>(hn::Lanes(d16));
#endif
  return {2.0 * kChains * kBytes * static_cast<double>(iterations), static_cast<float>(total)};
}

ProbeWork ProbeExp2(int64_t iterations) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kNumbers = 1024;
  constexpr int kTogether = FastExp<DF>::kSideBySide;
  HWY_ALIGN float x[kNumbers], y[kNumbers], constants[64];
  FillExpConstants(constants);
  asm volatile("" : : "r"(constants) : "memory");
  const FastExp<DF> exp(d, constants);
  for (int64_t i = 0; i < kNumbers; ++i) x[i] = -0.01f * static_cast<float>(i);
  float sink = 0;
  for (int64_t n = 0; n < iterations; ++n) {
    for (int64_t i = 0; i < kNumbers; i += kTogether * lanes) {
      VF v[kTogether];
#pragma GCC unroll 8
      for (int j = 0; j < kTogether; ++j) v[j] = hn::Load(d, x + i + j * lanes);
      exp.template Exp2<true>(d, v);
#pragma GCC unroll 8
      for (int j = 0; j < kTogether; ++j) hn::Store(v[j], d, y + i + j * lanes);
    }
    sink += y[n % kNumbers];
    asm volatile("" : : "r"(x), "r"(y) : "memory");
  }
  return {static_cast<double>(kNumbers) * static_cast<double>(iterations), sink};
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(ProbeRead);
HWY_EXPORT(ProbeFma);
HWY_EXPORT(ProbeInt8);
HWY_EXPORT(ProbeExp2);

float probe_read(const Isa& isa, ReadLoop loop, const float* memory, int64_t floats) {
  return (*HWY_DISPATCH_TABLE(ProbeRead)[isa.index])(loop, memory, floats);
}
ProbeWork probe_fma(const Isa& isa, int64_t iterations) {
  return (*HWY_DISPATCH_TABLE(ProbeFma)[isa.index])(iterations);
}
ProbeWork probe_int8(const Isa& isa, int64_t iterations) {
  return (*HWY_DISPATCH_TABLE(ProbeInt8)[isa.index])(iterations);
}
ProbeWork probe_exp2(const Isa& isa, int64_t iterations) {
  return (*HWY_DISPATCH_TABLE(ProbeExp2)[isa.index])(iterations);
}

}  // namespace adder
#endif
