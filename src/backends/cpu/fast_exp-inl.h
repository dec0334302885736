// exp2 and exp of numbers that are not positive, for loops that take a great many of them: the
// constants stay in registers, and on AVX2 and AVX-512 powers of two come from a table, which
// leaves fewer operations to the units that bound the scans than the functions of simd_math-inl.h.
//
// With a table of n entries, 2^x = 2^m * 2^f: m is x rounded to a multiple of 1 / n, 2^m a lookup
// in registers with an integer addition to the exponent bits, 2^f a polynomial of degree 2 or 3.
// Bounds are relative errors against double, as in simd_math-inl.h, and tested with them.
#if defined(ADDER_BACKENDS_CPU_FAST_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_FAST_EXP_INL_H_
#undef ADDER_BACKENDS_CPU_FAST_EXP_INL_H_
#else
#define ADDER_BACKENDS_CPU_FAST_EXP_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX2  // AVX-512 and AVX2: tables of 32 entries in two registers, of 8 in one

inline constexpr int kExpTableBits = HWY_TARGET <= HWY_AVX3 ? 5 : 3;
inline constexpr size_t kExpTableSize = size_t{1} << kExpTableBits;
// (2^f - 1) / f and (e^f - 1) / f, minimax in relative error of 1 + f * that, for f up to 1/64 and
// ln2/64: 5.3e-8; up to 1/16 and ln2/16: 2.7e-8. The last one is not used on AVX-512.
inline constexpr float kExpTablePoly[] = {
#if HWY_TARGET <= HWY_AVX3
    0.6931573f,  0.24022649f, 0.0f, 1.0000146f,
    0.50000376f, 0.0f
#else
    0.69314724f, 0.24025764f, 0.05549621f, 1.0000001f,
    0.50006473f, 0.16664283f
#endif
};

// Constants of FastExp, in memory that the compiler cannot look into: it would load them anew at
// every use otherwise. At most 64 floats.
inline void FillExpConstants(float* to) {
  for (size_t i = 0; i < kExpTableSize; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(kExpTableSize);
    // Less the exponent bits that the rounded argument will add for i.
    const auto power = std::bit_cast<uint32_t>(static_cast<float>(std::exp2(exponent)));
    to[i] = std::bit_cast<float>(power - (static_cast<uint32_t>(i) << (23 - kExpTableBits)));
  }
  to[kExpTableSize] = kRoundingMagic / static_cast<float>(kExpTableSize);
  std::copy_n(kExpTablePoly, 6, to + kExpTableSize + 1);
}

template <class D, class V = hn::Vec<D>>
class FastExp {
 public:
  // More exponentials side by side leave too few of AVX2's 16 registers.
  static constexpr int kSideBySide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

  HWY_INLINE FastExp(D d, const float* constants) {
    table_[0] = hn::LoadU(d, constants);
    if constexpr (HWY_TARGET <= HWY_AVX3) table_[1] = hn::LoadU(d, constants + 16);
    constants += kExpTableSize;
    magic_ = hn::Set(d, constants[0]);
    for (int i = 0; i < 3; ++i) {
      exp2_[i] = hn::Set(d, constants[1 + i]);
      exp_[i] = hn::Set(d, constants[4 + i]);
    }
  }

  // x[i] = 2^x[i]: 2e-7, exact at 0. x <= 0, and x >= -127 unless kClamp. Below -126 some number in
  // [0, 2^-126], 0 from -127 on. NaN gives something else.
  template <bool kClamp, int kCount>
  HWY_INLINE void Exp2(D d, V (&x)[kCount]) const {
    V slope[kCount], scale[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      if (kClamp) x[i] = hn::Max(x[i], hn::Set(d, -127.0f));
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) scale[i] = hn::Add(x[i], magic_);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) x[i] = hn::Sub(x[i], hn::Sub(scale[i], magic_));
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) slope[i] = Slope(x[i], exp2_);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) scale[i] = Power(d, scale[i]);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      x[i] = hn::MulAdd(hn::Mul(x[i], scale[i]), slope[i], scale[i]);
    }
  }

  // e^x for x <= 0: 3e-7; 0 below -87.33 = -126 ln 2. NaN gives NaN.
  HWY_INLINE V Exp(D d, V x) const {
    V scale = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic_);
    const V m = hn::Sub(scale, magic_);
    // ln 2 in two parts, the first short enough that its product is exact.
    V f = hn::NegMulAdd(m, hn::Set(d, 0.693359375f), x);
    f = hn::NegMulAdd(m, hn::Set(d, -2.12194440e-4f), f);
    scale = Power(d, scale);
    const V y = hn::MulAdd(hn::Mul(f, scale), Slope(f, exp_), scale);
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), y);
  }

 private:
  static HWY_INLINE V Slope(V f, const V (&poly)[3]) {
    if constexpr (HWY_TARGET <= HWY_AVX3) return hn::MulAdd(poly[1], f, poly[0]);
    return hn::MulAdd(hn::MulAdd(poly[2], f, poly[1]), f, poly[0]);
  }
  // 2^m, where `shifted` is m + magic: its low bits count table entries.
  HWY_INLINE V Power(D d, V shifted) const {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, shifted);
    // Highway 1.0.3 has no lookup that ignores the bits above those of the index.
#if HWY_TARGET <= HWY_AVX3
    const V entry{_mm512_permutex2var_ps(table_[0].raw, bits.raw, table_[1].raw)};
#else
    const V entry{_mm256_permutevar8x32_ps(table_[0].raw, bits.raw)};
#endif
    const auto exponent = hn::ShiftLeft<23 - kExpTableBits>(bits);
    return hn::BitCast(d, hn::Add(hn::BitCast(di, entry), exponent));
  }

  V table_[2];
  V magic_;
  V exp2_[3], exp_[3];
};

#else  // no lookup over a whole vector

inline void FillExpConstants(float*) {}

template <class D, class V = hn::Vec<D>>
class FastExp {
 public:
  static constexpr int kSideBySide = 4;

  HWY_INLINE FastExp(D, const float*) {}
  template <bool kClamp, int kCount>
  HWY_INLINE void Exp2(D d, V (&x)[kCount]) const {
    Exp2Many(d, x);
  }
  HWY_INLINE V Exp(D d, V x) const { return ExpNonPositive(d, x); }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#endif  // ADDER_BACKENDS_CPU_FAST_EXP_INL_H_
