// Mamba-2 scan, one token after the other: for single tokens, short remainders and numbers that the
// chunked form cannot take (ssd_chunk-inl.h). The state is read and written once for each block of
// 4 rows, whatever the number of tokens.
#if defined(ADDER_BACKENDS_CPU_SSD_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_SSD_RECURRENT_INL_H_
#undef ADDER_BACKENDS_CPU_SSD_RECURRENT_INL_H_
#else
#define ADDER_BACKENDS_CPU_SSD_RECURRENT_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/simd_math-inl.h"
#include "backends/cpu/ssd_head.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

// dt[i] = dt' of token t0 + i, for i < tokens <= kSsdChunk; 0 up to kSsdChunk.
inline void SsdTimeSteps(const SsdHead& s, int64_t t0, int64_t tokens, float* dt) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < tokens; ++i) dt[i] = s.dt[(t0 + i) * s.dt_row] + s.dt_bias;
  std::fill(dt + tokens, dt + kSsdChunk, 0.0f);
  if (s.dt_softplus) {
    for (int64_t i = 0; i < tokens; i += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(Softplus(d, hn::LoadU(d, dt + i)), d, dt + i);
  }
  for (int64_t i = 0; i < tokens; ++i) dt[i] = std::clamp(dt[i], s.dt_min, s.dt_max);  // NaN stays
  std::fill(dt + tokens, dt + kSsdChunk, 0.0f);
}

// If kSkip: out[t, p] += D[p] * x[t, p]. Then the gate. For the columns from p on.
template <bool kSkip, class D>
HWY_INLINE void SsdFinish(D d, const SsdHead& s, int64_t t, int64_t p) {
  auto y = hn::LoadU(d, s.out + t * s.out_row + p);
  if (kSkip && s.D) {
    const auto skip = s.D_step ? hn::LoadU(d, s.D + p) : hn::Set(d, *s.D);
    y = hn::MulAdd(skip, hn::LoadU(d, s.x + t * s.x_row + p), y);
  }
  if (s.z) y = hn::Mul(y, Silu(d, hn::LoadU(d, s.z + t * s.z_row + p)));
  hn::StoreU(y, d, s.out + t * s.out_row + p);
}

template <bool kSkip>
HWY_INLINE void SsdFinishRows(const SsdHead& s, int64_t t0, int64_t tokens) {
  if (!(kSkip && s.D) && !s.z) return;
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = t0; t < t0 + tokens; ++t) {
    int64_t p = 0;
    for (; p + lanes <= s.headdim; p += lanes) SsdFinish<kSkip>(d, s, t, p);
    for (; p < s.headdim; ++p) SsdFinish<kSkip>(d1, s, t, p);
  }
}

// One token for kRows rows of the state: S = decay * S + xdt * B, sums[r] = S * C.
template <int kRows, class D, class V = hn::Vec<D>>
HWY_INLINE void SsdStep(D d, int64_t n0, int64_t n1, float* S, int64_t S_row, const float* B,
                        const float* C, float decay, const float* xdt, V (&sums)[kRows]) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V vdecay = hn::Set(d, decay);
  V vx[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    vx[r] = hn::Set(d, xdt[r]);
    sums[r] = hn::Zero(d);
  }
  for (int64_t n = n0; n < n1; n += lanes) {
    const V vB = hn::LoadU(d, B + n), vC = hn::LoadU(d, C + n);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float* at = S + r * S_row + n;
      const V v = hn::MulAdd(hn::LoadU(d, at), vdecay, hn::Mul(vx[r], vB));
      hn::StoreU(v, d, at);
      sums[r] = hn::MulAdd(v, vC, sums[r]);
    }
  }
}

template <int kRows>
HWY_INLINE void SsdRecurrentRows(const SsdGroup& g, const SsdHead& s, int64_t p, int64_t t0,
                                 int64_t tokens, const float* dt, const float* decay) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = g.d_state / lanes * lanes;
  float* S = s.S + p * s.S_row;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t t = t0 + i;
    const float *B = g.B + t * g.B_row, *C = g.C + t * g.C_row;
    float xdt[kRows];
    for (int r = 0; r < kRows; ++r) xdt[r] = s.x[t * s.x_row + p + r] * dt[i];
    hn::Vec<decltype(d)> sums[kRows];
    hn::Vec<decltype(d1)> tails[kRows];
    SsdStep<kRows>(d, 0, whole, S, s.S_row, B, C, decay[i], xdt, sums);
    SsdStep<kRows>(d1, whole, g.d_state, S, s.S_row, B, C, decay[i], xdt, tails);
    for (int r = 0; r < kRows; ++r) {
      s.out[t * s.out_row + p + r] =
          hn::GetLane(hn::SumOfLanes(d, sums[r])) + hn::GetLane(tails[r]);
    }
  }
}

// Tokens [t0, t0 + tokens) of one head; tokens <= kSsdChunk.
inline void SsdRecurrent(const SsdGroup& g, const SsdHead& s, int64_t t0, int64_t tokens) {
  const hn::ScalableTag<float> d;
  float dt[kSsdChunk], decay[kSsdChunk];
  SsdTimeSteps(s, t0, tokens, dt);
  for (int64_t i = 0; i < tokens; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto exponent = hn::Mul(hn::LoadU(d, dt + i), hn::Set(d, s.A_log2e));
    hn::StoreU(Exp2(d, exponent), d, decay + i);
  }
  int64_t p = 0;
  for (; p + 4 <= s.headdim; p += 4) SsdRecurrentRows<4>(g, s, p, t0, tokens, dt, decay);
  for (; p < s.headdim; ++p) SsdRecurrentRows<1>(g, s, p, t0, tokens, dt, decay);
  SsdFinishRows</*kSkip=*/true>(s, t0, tokens);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#endif  // ADDER_BACKENDS_CPU_SSD_RECURRENT_INL_H_
