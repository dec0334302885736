// Mamba-2 scan, a chunk of up to 32 tokens at once as matrix products. With
// l[t] = sum of dt' * A_log2e over the chunk up to t (<= 0) and S0 the state at its start:
//   y[t] = 2^l[t] * S0 C[t] + sum_{s <= t} 2^(l[t] - l[s]) * (C[t] . B[s]) * dt'[s] * x[s]
//   S1   = 2^l[last] * S0 + sum_s 2^(l[last] - l[s]) * dt'[s] * outer(x[s], B[s])
// Per token and head 33 k multiply-adds at headdim 64, d_state 128; the state is read twice and
// written once per chunk. y is computed transposed, tokens in the lanes, so that the state needs no
// other layout than its own: its elements enter as broadcasts, C as panels of up to 16 tokens.
//
// A sum over tokens that are masked with 0 turns NaN and inf of a later token into NaN of an
// earlier one. Chunks with such numbers, or with exponents above 0, go the recurrent way instead.
#if defined(ADDER_BACKENDS_CPU_SSD_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_SSD_CHUNK_INL_H_
#undef ADDER_BACKENDS_CPU_SSD_CHUNK_INL_H_
#else
#define ADDER_BACKENDS_CPU_SSD_CHUNK_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/ssd_recurrent-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

// A panel holds 16 tokens or less: wider ones waste more on the upper triangle and on short chunks.
inline constexpr int kPanelVectors = hn::MaxLanes(hn::ScalableTag<float>()) < 16 ? 2 : 1;

// Tokens of a panel.
inline int64_t SsdPanel() {
  return kPanelVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

// Scratch of one thread. Panels hold tokens [j * panel, (j + 1) * panel) side by side.
struct SsdScratch {
  float* C;    // (panels, d_state, panel)
  float* B;    // (kSsdChunk, d_state)
  float* CB;   // (panels, kSsdChunk, panel): C[t] . B[s] at [s][t]
  float* M;    // the same times 2^(l[t] - l[s]), 0 for s > t
  float* xdt;  // (kSsdChunk, headdim): dt' * x, later times 2^(l[last] - l[s])
  float* y;    // (headdim, kSsdChunk): transposed output

  static size_t floats(int64_t headdim, int64_t d_state) {
    return static_cast<size_t>(kSsdChunk * (2 * d_state + 2 * kSsdChunk + 2 * headdim));
  }
  SsdScratch(float* memory, int64_t headdim, int64_t d_state)
      : C(memory),
        B(C + kSsdChunk * d_state),
        CB(B + kSsdChunk * d_state),
        M(CB + kSsdChunk * kSsdChunk),
        xdt(M + kSsdChunk * kSsdChunk),
        y(xdt + kSsdChunk * headdim) {}
};

// acc[r][v] += sum_k a[r * a_row + k * a_step] * panel[k][v], k < depth.
template <int kRows, int kVectors, class D, class V = hn::Vec<D>>
HWY_INLINE void SsdAccumulate(D d, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_step,
                              const float* HWY_RESTRICT panel, int64_t panel_row, int64_t depth,
                              V (&acc)[kRows][kVectors]) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < depth; ++k, a += a_step, panel += panel_row) {
    V b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(d, panel + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, a[r * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(x, b[v], acc[r][v]);
    }
  }
}

// Calls body with std::integral_constant R and a row, for blocks of R rows that cover [0, rows).
// 6 rows of 2 vectors fill the 16 registers of AVX2: 12 sums, 2 of the panel, one broadcast.
// AVX-512 has 32 of them.
template <class Body>
HWY_INLINE void SsdRowBlocks(int64_t rows, Body body) {
  int64_t r = 0;
  constexpr int kMost = kPanelVectors == 2 ? 6 : 8;
  for (; r + kMost <= rows; r += kMost) body(std::integral_constant<int, kMost>(), r);
  for (; r + 4 <= rows; r += 4) body(std::integral_constant<int, 4>(), r);
  for (; r < rows; ++r) body(std::integral_constant<int, 1>(), r);
}

#if HWY_TARGET != HWY_SCALAR
// columns[k][i] = rows[i][k]
template <class D, class V = hn::Vec<D>>
HWY_INLINE void SsdTranspose4(D d, const V (&rows)[4], V (&columns)[4]) {
  const V ab_low = hn::InterleaveLower(d, rows[0], rows[1]);
  const V ab_high = hn::InterleaveUpper(d, rows[0], rows[1]);
  const V ce_low = hn::InterleaveLower(d, rows[2], rows[3]);
  const V ce_high = hn::InterleaveUpper(d, rows[2], rows[3]);
  columns[0] = hn::ConcatLowerLower(d, ce_low, ab_low);
  columns[1] = hn::ConcatUpperUpper(d, ce_low, ab_low);
  columns[2] = hn::ConcatLowerLower(d, ce_high, ab_high);
  columns[3] = hn::ConcatUpperUpper(d, ce_high, ab_high);
}
#endif

// to[k][i] = from[i][k] for `width` <= 4 rows `from` (null: zeros) and k < count; the rows of `to`
// lie to_row apart. Returns 0, or NaN if a number is not finite.
inline float SsdTranspose(const float* const (&from)[4], int64_t width, int64_t count, float* to,
                          int64_t to_row) {
  float check = 0;
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  auto checks = hn::Zero(d);
  for (; width == 4 && k + 4 <= count; k += 4) {
    hn::Vec<decltype(d)> rows[4], columns[4];
    for (int i = 0; i < 4; ++i) {
      rows[i] = from[i] ? hn::LoadU(d, from[i] + k) : hn::Zero(d);
      checks = hn::MulAdd(rows[i], hn::Zero(d), checks);
    }
    SsdTranspose4(d, rows, columns);
    for (int i = 0; i < 4; ++i) hn::StoreU(columns[i], d, to + (k + i) * to_row);
  }
  check = hn::GetLane(hn::SumOfLanes(d, checks));
#endif
  for (; k < count; ++k) {
    for (int64_t i = 0; i < width; ++i) {
      const float v = from[i] ? from[i][k] : 0.0f;
      to[k * to_row + i] = v;
      check += v * 0.0f;
    }
  }
  return check;
}

// Copies a row. Returns 0, or NaN if a number is not finite.
inline float SsdCopy(const float* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto checks = hn::Zero(d);
  int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    const auto v = hn::LoadU(d, from + n);
    hn::StoreU(v, d, to + n);
    checks = hn::MulAdd(v, hn::Zero(d), checks);
  }
  float check = hn::GetLane(hn::SumOfLanes(d, checks));
  for (; n < count; ++n) {
    to[n] = from[n];
    check += from[n] * 0.0f;
  }
  return check;
}

// Packs B and C of tokens [t0, t0 + tokens) and computes CB, once for all heads of the group.
// False if B or C has a number that is not finite.
inline bool SsdPrepareGroup(const SsdGroup& g, int64_t t0, int64_t tokens, const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const int64_t panel = SsdPanel(), lanes = panel / kPanelVectors, N = g.d_state;
  float check = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    check += SsdCopy(g.B + (t0 + t) * g.B_row, N, w.B + t * N);
  }
  for (int64_t j = 0; j * panel < tokens; ++j) {
    const int64_t width = std::min<int64_t>(4, panel);
    for (int64_t i = 0; i < panel; i += width) {
      const float* rows[4] = {};
      for (int64_t k = 0; k < width; ++k) {
        const int64_t t = j * panel + i + k;
        rows[k] = t < tokens ? g.C + (t0 + t) * g.C_row : nullptr;
      }
      check += SsdTranspose(rows, width, N, w.C + j * N * panel + i, panel);
    }
    const float* C = w.C + j * N * panel;
    float* CB = w.CB + j * kSsdChunk * panel;
    SsdRowBlocks(std::min(tokens, (j + 1) * panel), [&](auto rows, int64_t s) HWY_ATTR {
      constexpr int kRows = decltype(rows)::value;
      hn::Vec<decltype(d)> acc[kRows][kPanelVectors];
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kPanelVectors; ++v) acc[r][v] = hn::Zero(d);
      SsdAccumulate<kRows, kPanelVectors>(d, w.B + s * N, N, 1, C, panel, N, acc);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kPanelVectors; ++v)
          hn::StoreU(acc[r][v], d, CB + (s + r) * panel + v * lanes);
    });
  }
  return check == 0;
}

// l = high + low: two floats hold the sum to 48 bits, so that a difference of two large sums is as
// good as a small one.
struct SsdExponents {
  HWY_ALIGN float high[kSsdChunk], low[kSsdChunk];
  HWY_ALIGN float decay[kSsdChunk];    // 2^l[t]
  HWY_ALIGN float to_last[kSsdChunk];  // 2^(l[last] - l[t])
};

// False if an exponent is NaN or above 0.
inline bool SsdCumulate(const SsdHead& s, const float* dt, int64_t tokens, SsdExponents& e) {
  const hn::ScalableTag<float> d;
  double l = 0;
  for (int64_t t = 0; t < kSsdChunk; ++t) {
    if (t < tokens) {
      const double step = double{dt[t]} * double{s.A_log2e};
      if (!(step <= 0)) return false;
      // A product of decays below 2^-256 is 0 in float32 anyway; the bound keeps l finite.
      l += std::max(step, -256.0);
    }
    e.high[t] = static_cast<float>(l);
    e.low[t] = static_cast<float>(l - double{e.high[t]});
  }
  const auto high = hn::Set(d, e.high[tokens - 1]), low = hn::Set(d, e.low[tokens - 1]);
  for (int64_t t = 0; t < kSsdChunk; t += static_cast<int64_t>(hn::Lanes(d))) {
    const auto t_high = hn::LoadU(d, e.high + t), t_low = hn::LoadU(d, e.low + t);
    hn::StoreU(Exp2NonPositive(d, t_high), d, e.decay + t);
    const auto rest = hn::Add(hn::Sub(high, t_high), hn::Sub(low, t_low));
    hn::StoreU(Exp2NonPositive(d, hn::Min(rest, hn::Zero(d))), d, e.to_last + t);
  }
  return true;
}

// M[s][t] = CB[s][t] * 2^(l[t] - l[s]), exponents masked before exp2.
inline void SsdDecayMatrix(const SsdExponents& e, int64_t tokens, const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const int64_t panel = SsdPanel(), lanes = panel / kPanelVectors;
  for (int64_t t = 0; t < (tokens + panel - 1) / panel * panel; t += lanes) {
    const auto high = hn::LoadU(d, e.high + t), low = hn::LoadU(d, e.low + t);
    const auto index = hn::Iota(d, static_cast<float>(t));
    const int64_t column = t / panel * kSsdChunk * panel + t % panel;
    for (int64_t s = 0; s < std::min(tokens, (t / panel + 1) * panel); ++s) {
      const auto causal = hn::Ge(index, hn::Set(d, static_cast<float>(s)));
      const auto diff =
          hn::Add(hn::Sub(high, hn::Set(d, e.high[s])), hn::Sub(low, hn::Set(d, e.low[s])));
      const auto decay = Exp2NonPositive(d, hn::Min(diff, hn::Zero(d)));
      const auto CB = hn::LoadU(d, w.CB + column + s * panel);
      hn::StoreU(hn::IfThenElseZero(causal, hn::Mul(CB, decay)), d, w.M + column + s * panel);
    }
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SsdScaleInputs(D d, const float* x, float dt, float* xdt) {
  const V scaled = hn::Mul(hn::LoadU(d, x), hn::Set(d, dt));
  hn::StoreU(scaled, d, xdt);
  return hn::Mul(scaled, hn::Zero(d));
}

// w.xdt = dt' * x. False if a number of it is not finite.
inline bool SsdPrepareInputs(const SsdHead& s, int64_t t0, int64_t tokens, const float* dt,
                             const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto checks = hn::Zero(d);
  auto check = hn::Zero(d1);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = s.x + (t0 + t) * s.x_row;
    float* xdt = w.xdt + t * s.headdim;
    int64_t p = 0;
    for (; p + lanes <= s.headdim; p += lanes)
      checks = hn::Add(checks, SsdScaleInputs(d, x + p, dt[t], xdt + p));
    for (; p < s.headdim; ++p) check = hn::Add(check, SsdScaleInputs(d1, x + p, dt[t], xdt + p));
  }
  return hn::GetLane(hn::SumOfLanes(d, checks)) + hn::GetLane(check) == 0;
}

// w.xdt[t] *= 2^(l[last] - l[t]), once the outputs no longer need it.
inline void SsdDecayInputs(const SsdHead& s, int64_t tokens, const SsdExponents& e,
                           const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < tokens; ++t) {
    float* xdt = w.xdt + t * s.headdim;
    int64_t p = 0;
    for (; p + lanes <= s.headdim; p += lanes) SsdScaleInputs(d, xdt + p, e.to_last[t], xdt + p);
    for (; p < s.headdim; ++p) SsdScaleInputs(d1, xdt + p, e.to_last[t], xdt + p);
  }
}

// y transposed: (S0 C) * 2^l + xdt M, for kRows rows of the state and one panel of tokens.
template <int kRows>
HWY_INLINE void SsdOutputTile(const SsdGroup& g, const SsdHead& s, const SsdExponents& e, int64_t p,
                              int64_t j, int64_t tokens, const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const int64_t panel = SsdPanel(), lanes = panel / kPanelVectors;
  hn::Vec<decltype(d)> acc[kRows][kPanelVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) acc[r][v] = hn::Zero(d);
  SsdAccumulate<kRows, kPanelVectors>(d, s.S + p * s.S_row, s.S_row, 1, w.C + j * g.d_state * panel,
                                      panel, g.d_state, acc);
#pragma GCC unroll 2
  for (int v = 0; v < kPanelVectors; ++v) {
    const auto decay = hn::LoadU(d, e.decay + j * panel + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r][v] = hn::Mul(acc[r][v], decay);
  }
  SsdAccumulate<kRows, kPanelVectors>(d, w.xdt + p, 1, s.headdim, w.M + j * kSsdChunk * panel,
                                      panel, std::min(tokens, (j + 1) * panel), acc);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v)
      hn::StoreU(acc[r][v], d, w.y + (p + r) * kSsdChunk + j * panel + v * lanes);
}

// S = decay * S + sum_t xdt[t] * B[t], for kRows rows and kVectors vectors from n on.
template <int kRows, int kVectors, class D>
HWY_INLINE void SsdStateTile(D d, const SsdGroup& g, const SsdHead& s, float decay, int64_t p,
                             int64_t n, int64_t tokens, const SsdScratch& w) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> acc[kRows][kVectors];
  float* S = s.S + p * s.S_row + n;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = hn::Mul(hn::LoadU(d, S + r * s.S_row + v * lanes), hn::Set(d, decay));
  }
  SsdAccumulate<kRows, kVectors>(d, w.xdt + p, 1, s.headdim, w.B + n, g.d_state, tokens, acc);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, S + r * s.S_row + v * lanes);
  }
}

template <int kRows>
HWY_INLINE void SsdStateRows(const SsdGroup& g, const SsdHead& s, float decay, int64_t p,
                             int64_t tokens, const SsdScratch& w) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + 2 * lanes <= g.d_state; n += 2 * lanes)
    SsdStateTile<kRows, 2>(d, g, s, decay, p, n, tokens, w);
  for (; n + lanes <= g.d_state; n += lanes)
    SsdStateTile<kRows, 1>(d, g, s, decay, p, n, tokens, w);
  for (; n < g.d_state; ++n) SsdStateTile<kRows, 1>(d1, g, s, decay, p, n, tokens, w);
}

// y (headdim, kSsdChunk) plus D * x to the rows of out, 4 whole rows at a time: rows may lie a
// multiple of 4 KB apart, where the L1 cache holds 8 lines.
inline void SsdStoreOutput(const SsdHead& s, int64_t t0, int64_t tokens, const SsdScratch& w) {
  const float none = 0;
  const float* D = s.D ? s.D : &none;
  const hn::CappedTag<float, 1> d1;
  for (int64_t t = 0; t < tokens; t += 4) {
    const int64_t rows = std::min<int64_t>(4, tokens - t);
    const float* x = s.x + (t0 + t) * s.x_row;
    float* out = s.out + (t0 + t) * s.out_row;
    int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::Full128<float> d;
    for (; p + 4 <= s.headdim; p += 4) {
      const auto skip = s.D_step ? hn::LoadU(d, D + p) : hn::Set(d, *D);
      hn::Vec<decltype(d)> y[4], columns[4];
      // y's rows are whole panels: those of no token are there to be read.
      for (int64_t k = 0; k < 4; ++k) y[k] = hn::LoadU(d, w.y + (p + k) * kSsdChunk + t);
      SsdTranspose4(d, y, columns);
#pragma GCC unroll 4
      for (int64_t k = 0; k < 4; ++k) {
        if (k >= rows) break;
        const auto input = hn::LoadU(d, x + k * s.x_row + p);
        hn::StoreU(hn::MulAdd(skip, input, columns[k]), d, out + k * s.out_row + p);
      }
    }
#endif
    for (; p < s.headdim; ++p) {
      const auto skip = hn::Set(d1, D[s.D_step * p]);
      for (int64_t k = 0; k < rows; ++k) {
        const auto y = hn::LoadU(d1, w.y + p * kSsdChunk + t + k);
        const auto input = hn::LoadU(d1, x + k * s.x_row + p);
        hn::StoreU(hn::MulAdd(skip, input, y), d1, out + k * s.out_row + p);
      }
    }
  }
}

// Asks for a share of the rows that a head's next chunk will read or write: the pieces of
// rows [from, to) of `tokens`. They are too short and in too many pages for the hardware to
// foresee.
inline void SsdPrefetch(const float* base, int64_t row, int64_t width, int64_t from, int64_t to) {
  constexpr int64_t kLine = 16;
  for (int64_t t = from; t < to; ++t) {
    for (int64_t i = 0; i < width; i += kLine) hwy::Prefetch(base + t * row + i);
  }
}

// What SsdChunk will be called for next; tokens 0: nothing.
struct SsdNext {
  const SsdHead* head;
  int64_t t0, tokens;
};

// Tokens [t0, t0 + tokens) of one head, tokens <= kSsdChunk, after SsdPrepareGroup for them.
inline void SsdChunk(const SsdGroup& g, const SsdHead& s, int64_t t0, int64_t tokens,
                     const SsdNext& next, const SsdScratch& w) {
  HWY_ALIGN float dt[kSsdChunk];
  SsdExponents e;
  SsdTimeSteps(s, t0, tokens, dt);
  if (!SsdCumulate(s, dt, tokens, e) || !SsdPrepareInputs(s, t0, tokens, dt, w)) {
    SsdRecurrent(g, s, t0, tokens);
    return;
  }
  SsdDecayMatrix(e, tokens, w);
  const SsdHead& n = *next.head;
  const auto share = [&](int64_t p) { return next.tokens * std::min(p, s.headdim) / s.headdim; };
  for (int64_t j = 0; j * SsdPanel() < tokens; ++j) {
    SsdRowBlocks(s.headdim, [&](auto rows, int64_t p) HWY_ATTR {
      if (j == 0) {
        const int64_t from = share(p), to = share(p + decltype(rows)::value);
        SsdPrefetch(n.x + next.t0 * n.x_row, n.x_row, n.headdim, from, to);
      }
      SsdOutputTile<decltype(rows)::value>(g, s, e, p, j, tokens, w);
    });
  }
  SsdDecayInputs(s, tokens, e, w);
  const float decay = e.decay[tokens - 1];
  SsdRowBlocks(s.headdim, [&](auto rows, int64_t p) HWY_ATTR {
    const int64_t from = share(p), to = share(p + decltype(rows)::value);
    SsdPrefetch(n.out + next.t0 * n.out_row, n.out_row, n.headdim, from, to);
    if (n.z) SsdPrefetch(n.z + next.t0 * n.z_row, n.z_row, n.headdim, from, to);
    SsdStateRows<decltype(rows)::value>(g, s, decay, p, tokens, w);
  });
  SsdStoreOutput(s, t0, tokens, w);
  if (s.z) SsdFinishRows</*kSkip=*/false>(s, t0, tokens);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#endif  // ADDER_BACKENDS_CPU_SSD_CHUNK_INL_H_
