// Vector exp2, exp, softplus, sigmoid and silu for float32, of any vector length.
//
// Bounds are relative errors against double, over all floats of the range given, for the results
// that are normal numbers; tests/backends/simd_math_test.cc holds every instruction set to them.
// 1 ulp = 2^-23 = 1.2e-7 relative, at most. NaN gives NaN. No result is a trap, whatever the input.
#if defined(ADDER_BACKENDS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_SIMD_MATH_INL_H_
#undef ADDER_BACKENDS_CPU_SIMD_MATH_INL_H_
#else
#define ADDER_BACKENDS_CPU_SIMD_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 1.5 * 2^23: adding it rounds to the nearest integer and leaves that integer in the low bits.
inline constexpr float kRoundingMagic = 12582912.0f;

// x[i] = 2^x[i] for x <= 128 raised to at least -127; NaN gives something else. The integer part is
// added to the exponent bits: one integer addition, where a multiplication would load the units
// that bound the scans. At x = -127 the fraction is 0 and the polynomial exactly 1, so that the
// exponent field becomes 0 and the result +0; just above it the result is some number below 2^-126.
// At x = 128 the same addition gives +inf.
//
// One exp2 is a chain of 12 dependent operations, about 40 clocks. Several are written side by
// side, because a core does not look far enough ahead to overlap chains that follow one another.
template <int kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Exp2Many(D d, V (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, kRoundingMagic);
  V shifted[kCount], p[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) x[i] = hn::Max(x[i], hn::Set(d, -127.0f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) shifted[i] = hn::Add(x[i], magic);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) x[i] = hn::Sub(x[i], hn::Sub(shifted[i], magic));
    // Now x is the fraction, exact, in [-0.5, 0.5]. Minimax in relative error with p(0) =
    // 1: 9.2e-8. The error vanishes towards 0, so a decay close to 1 keeps its distance from 1.
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i)
    p[i] = hn::MulAdd(hn::Set(d, 0.00132647273f), x[i], hn::Set(d, 0.00967151299f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, 0.0555073358f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, 0.240222424f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, 0.693147004f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, 1.0f));
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted[i]));
    x[i] = hn::BitCast(d, hn::Add(hn::BitCast(di, p[i]), exponent));
  }
}

// 2^x for x <= 0: 2e-7. Results below 2^-126 come out as some number in [0, 2^-126], exactly 0 from
// x = -127 on (-inf included). x > 128 is not supported.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2NonPositive(D d, V x) {
  V y[1] = {x};
  Exp2Many(d, y);
  return hn::IfThenElse(hn::IsNaN(x), x, y[0]);
}

// 2^x: 2e-7. +inf from 128 on, below -126 as above.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  return Exp2NonPositive(d, hn::IfThenElse(hn::Gt(x, hn::Set(d, 128.0f)), hn::Set(d, 128.0f), x));
}

// e^x for x <= 0: 3e-7; 0 below -87.33 = -126 ln 2. x > 88 is not supported.
// ln 2 is split in two, so that a large |x| costs no accuracy.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, kRoundingMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  // The high part has 9 trailing zero bits: n * high is exact without an fma as well.
  const V f =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  // Minimax in relative error with p(0) = 1 on [-ln2 / 2, ln2 / 2]: 9.2e-8.
  V p = hn::Set(d, 0.00829030667f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.0418979749f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.166676372f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.499991506f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.999999702f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  // A product, because NaN must survive it.
  const auto scale = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 0x3F800000));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), hn::Mul(p, hn::BitCast(d, scale)));
}

// log(1 + x) for x in [0, 1]: 3e-7. Minimax polynomial for log1p(x) / x: 3.3e-8.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1pUnit(D d, V x) {
  V q = hn::Set(d, 0.00536482781f);
  q = hn::MulAdd(q, x, hn::Set(d, -0.0300658084f));
  q = hn::MulAdd(q, x, hn::Set(d, 0.0792045668f));
  q = hn::MulAdd(q, x, hn::Set(d, -0.137538046f));
  q = hn::MulAdd(q, x, hn::Set(d, 0.191536561f));
  q = hn::MulAdd(q, x, hn::Set(d, -0.248571634f));
  q = hn::MulAdd(q, x, hn::Set(d, 0.33321324f));
  q = hn::MulAdd(q, x, hn::Set(d, -0.499996483f));
  return hn::Mul(x, hn::MulAdd(q, x, hn::Set(d, 1.0f)));
}

// -|v|
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NegativeAbs(D d, V v) {
  return hn::Or(v, hn::SignBit(d));
}

// v > 20 ? v : log(1 + e^v): 5e-7; 0 below -87.33. Computed as max(v, 0) + log1p(e^-|v|), which
// needs no threshold: beyond 20 the second term is less than half an ulp of v.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SoftplusFrom(D d, V v, V exp_of_negative_abs) {
  return hn::Add(hn::ZeroIfNegative(v), Log1pUnit(d, exp_of_negative_abs));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Softplus(D d, V v) {
  return SoftplusFrom(d, v, ExpNonPositive(d, NegativeAbs(d, v)));
}

// 1 / (1 + e^-v): 5e-7; 0 below -87.33. With e = e^-|v|: 1 / (1 + e), or e / (1 + e) for v < 0.
// (IfNegativeThenElse of Highway 1.0.3 picks the wrong lanes of floats on SSSE3.)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V v) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpNonPositive(d, NegativeAbs(d, v));
  return hn::Div(hn::IfThenElse(hn::Lt(v, hn::Zero(d)), e, one), hn::Add(one, e));
}

// v / (1 + e^-v): 6e-7; -0 below -87.33. NaN at -inf, as the formula has it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluFrom(D d, V v, V e) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(hn::Mul(v, hn::IfThenElse(hn::Lt(v, hn::Zero(d)), e, one)), hn::Add(one, e));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V v) {
  return SiluFrom(d, v, ExpNonPositive(d, NegativeAbs(d, v)));
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#endif  // ADDER_BACKENDS_CPU_SIMD_MATH_INL_H_
