// Products of bytes: "quads" of 4 neighbours along k for each of kLanes outputs, summed to int32.
//
// Four ways, equal to the bit because integers are:
//   nibbles  Weights of 4 bits are unsigned: products of unsigned and signed bytes, added to pairs
//   of
//            int16. 8 pairs fit a block of 32: 8 * 2 * 15 * 127 = 30480.
//   signs    |w| times x with the sign of w. |w| <= 128 (Q8_0 may hold -128), and a pair fits:
//            2 * 128 * 127 = 32512, but no second one, so every pair is widened to int32.
//   wide     x is kept as int16 and w is widened to it, once for all rows of a tile. On x86 that
//            takes two multiplications for 32 products where signs take three instructions of the
//            same ports: measured 1.2 times as fast on Zen 4 in the L1 cache.
//   VNNI     A quad of unsigned times signed bytes is one instruction: x is kept with 128 added,
//   and
//            128 times the sum of the weights comes off again.
#if defined(ADDER_BACKENDS_CPU_INT8_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_INT8_DOT_INL_H_
#undef ADDER_BACKENDS_CPU_INT8_DOT_INL_H_
#else
#define ADDER_BACKENDS_CPU_INT8_DOT_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "backends/cpu/packed_weight.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanel>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

#undef ADDER_INT8_X86
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || \
    HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
#define ADDER_INT8_X86
#endif

inline constexpr bool kVnni = HWY_TARGET == HWY_AVX3_DL;
// What the bytes of x are changed by before they are kept.
inline constexpr uint8_t kFlipX = kVnni ? 0x80 : 0;
// Whether products with bytes go the wide way; ADDER_INT8_WIDE is defined where they do.
#undef ADDER_INT8_WIDE
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
#define ADDER_INT8_WIDE
inline constexpr bool kWideX = true;
#else
inline constexpr bool kWideX = false;
#endif

// An empty instruction that reads and writes v: the compiler cannot move what makes v beyond it.
template <class V>
HWY_INLINE void KeepInRegister(V& v) {
#ifdef ADDER_INT8_X86
  asm volatile("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

#if HWY_TARGET == HWY_SCALAR

struct Quads {
  int8_t v[4];
};
using Pairs = int32_t;

HWY_INLINE Quads LoadQuads(const uint8_t* p) {
  Quads q;
  std::memcpy(q.v, p, 4);
  return q;
}
HWY_INLINE Quads RepeatQuad(const uint8_t* p) {
  return LoadQuads(p);
}
HWY_INLINE Quads LowNibbles(Quads q) {
  for (int8_t& v : q.v) v = static_cast<int8_t>(v & 15);
  return q;
}
HWY_INLINE Quads HighNibbles(Quads q) {
  for (int8_t& v : q.v) v = static_cast<int8_t>((v >> 4) & 15);
  return q;
}
HWY_INLINE Pairs ZeroPairs() {
  return 0;
}
HWY_INLINE Pairs AddPairs(Pairs sum, Quads w, Quads x) {
  for (int i = 0; i < 4; ++i) sum += w.v[i] * x.v[i];
  return sum;
}
HWY_INLINE VI SumPairs(Pairs pairs) {
  return hn::Set(DI(), pairs);
}
HWY_INLINE VI AddDot(VI sum, Quads w, Quads x) {
  return hn::Add(sum, SumPairs(AddPairs(0, w, x)));
}

#else

using D8 = hn::Repartition<int8_t, DF>;
using D16 = hn::Repartition<int16_t, DF>;
using Quads = hn::Vec<D8>;
using Pairs = hn::Vec<D16>;

HWY_INLINE Quads LoadQuads(const uint8_t* p) {
  return hn::LoadU(D8(), reinterpret_cast<const int8_t*>(p));
}
HWY_INLINE Quads RepeatQuad(const uint8_t* p) {
  int32_t quad;
  std::memcpy(&quad, p, sizeof quad);
  return hn::BitCast(D8(), hn::Set(DI(), quad));
}
HWY_INLINE Quads LowNibbles(Quads q) {
  return hn::And(q, hn::Set(D8(), 15));
}
HWY_INLINE Quads HighNibbles(Quads q) {
  const hn::RebindToUnsigned<D16> du;
  return hn::And(hn::BitCast(D8(), hn::ShiftRight<4>(hn::BitCast(du, q))), hn::Set(D8(), 15));
}
HWY_INLINE Pairs ZeroPairs() {
  return hn::Zero(D16());
}

// Pairs of unsigned w times signed x.
HWY_INLINE Pairs MultiplyPairs(Quads w, Quads x) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  return Pairs{_mm512_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return Pairs{_mm256_maddubs_epi16(w.raw, x.raw)};
#elif defined(ADDER_INT8_X86)
  return Pairs{_mm_maddubs_epi16(w.raw, x.raw)};
#else
  const D16 d;
  const auto w16 = hn::BitCast(d, w), x16 = hn::BitCast(d, x);
  const auto even =
      hn::Mul(hn::And(w16, hn::Set(d, 255)), hn::ShiftRight<8>(hn::ShiftLeft<8>(x16)));
  const hn::RebindToUnsigned<D16> du;
  const auto odd =
      hn::Mul(hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(du, w))), hn::ShiftRight<8>(x16));
  return hn::Add(even, odd);
#endif
}

HWY_INLINE Pairs AddPairs(Pairs sum, Quads w, Quads x) {
  return hn::Add(sum, MultiplyPairs(w, x));
}

HWY_INLINE VI SumPairs(Pairs pairs) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  return VI{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
#elif defined(ADDER_INT8_X86)
  return VI{_mm_madd_epi16(pairs.raw, _mm_set1_epi16(1))};
#else
  const auto p = hn::BitCast(DI(), pairs);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(p)), hn::ShiftRight<16>(p));
#endif
}

// x with the sign of w; anything where w is 0.
HWY_INLINE Quads CopyNegation(Quads x, Quads w) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  return Quads{
      _mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(w.raw), _mm512_setzero_si512(), x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return Quads{_mm256_sign_epi8(x.raw, w.raw)};
#elif defined(ADDER_INT8_X86)
  return Quads{_mm_sign_epi8(x.raw, w.raw)};
#else
  return hn::IfThenElse(hn::Lt(w, hn::Zero(D8())), hn::Neg(x), x);
#endif
}

// sum + quads of signed w times x, one sum per output.
HWY_INLINE VI AddDot(VI sum, Quads w, Quads x) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway 1.0.3 compiles this target without avx512vnni, though it asks the CPU for it.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
  return sum;
#else
  return hn::Add(sum, SumPairs(MultiplyPairs(hn::Abs(w), CopyNegation(x, w))));
#endif
}

#endif  // HWY_SCALAR

#ifdef ADDER_INT8_WIDE

// A quad (w0, w1, w2, w3) as the pairs (w0, w2) and (w1, w3).
HWY_INLINE Pairs EvenPairs(Quads w) {
  return hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(D16(), w)));
}
HWY_INLINE Pairs OddPairs(Quads w) {
  return hn::ShiftRight<8>(hn::BitCast(D16(), w));
}
HWY_INLINE Pairs RepeatPair(const uint8_t* p) {
  return hn::BitCast(D16(), RepeatQuad(p));
}
HWY_INLINE VI AddPairDot(VI sum, Pairs w, Pairs x) {
#if HWY_TARGET == HWY_AVX2
  return hn::Add(sum, VI{_mm256_madd_epi16(w.raw, x.raw)});
#else
  return hn::Add(sum, VI{_mm_madd_epi16(w.raw, x.raw)});
#endif
}
// Four values of x as the pairs (x0, x2), (x1, x3), for each quad of the vector.
template <class V>
HWY_INLINE V OrderPairs(V x) {
  return V{_mm_shufflehi_epi16(_mm_shufflelo_epi16(x.raw, _MM_SHUFFLE(3, 1, 2, 0)),
                               _MM_SHUFFLE(3, 1, 2, 0))};
}

#endif  // ADDER_INT8_WIDE

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();
#endif
