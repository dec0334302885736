// Loads of float32, float16 and bfloat16 as float32 vectors, exact for every bit pattern
// (subnormals and infinities included; NaN stays NaN).
#if defined(ADDER_BACKENDS_CPU_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_LOAD_INL_H_
#undef ADDER_BACKENDS_CPU_LOAD_INL_H_
#else
#define ADDER_BACKENDS_CPU_LOAD_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> WidenU(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> WidenU(D d, const hwy::bfloat16_t* p) {
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> WidenU(D d, const hwy::float16_t* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::LoadU(df16, p));  // F16C
#else
  // Highway's own emulation maps Inf and NaN to large numbers. Here exponent and mantissa move to
  // their float32 places, an exact product with 2^112 corrects the bias (subnormals as well), and
  // the all-ones exponent is restored by hand.
  const hn::RebindToUnsigned<D> du32;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  const auto magnitude = hn::And(bits, hn::Set(du32, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special =
      hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du32, 0x7bffu)), hn::Set(du32, 0x7f800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(du32, scaled), special), sign));
#endif
}

// The first `count` < Lanes(d) elements, zeros after them. Reads no byte past the last element.
template <class D, typename T>
HWY_INLINE hn::Vec<D> WidenTail(D d, const T* p, size_t count) {
  HWY_ALIGN T padded[hn::MaxLanes(d)] = {};
  std::memcpy(padded, p, count * sizeof(T));
  return WidenU(d, padded);
}

// Writes the first `count` < Lanes(d) elements.
template <class D>
HWY_INLINE void StoreTail(hn::Vec<D> v, D d, float* p, size_t count) {
  HWY_ALIGN float padded[hn::MaxLanes(d)];
  hn::Store(v, d, padded);
  std::memcpy(p, padded, count * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();
#endif
