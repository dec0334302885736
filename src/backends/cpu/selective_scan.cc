// Mamba-1 scan. Neighbouring channels lie in the lanes of a vector, so that no sum crosses lanes.
//
// A task owns one sequence and up to 512 channels, and walks the tokens in blocks of 16, and each
// block in tiles of 64 channels: first dt and dt * u of the tile, then groups of 2 or 4 states
// whose vectors stay in registers over the block while y accumulates in the L1 cache, last the
// gate. The next tile is prefetched meanwhile: rows are pages apart, and without that the scan
// waits for address translations as long as it computes. Every number is computed in the same order
// for any cut of a sequence into calls: prefill and decode agree to the bit. Cost: one exp2 per
// token, channel and state; with it a state takes 8 operations of the two FMA units of AVX2, 7 of
// AVX-512.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/selective_scan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include <algorithm>

#include "backends/cpu/fast_exp-inl.h"
#include "backends/cpu/load-inl.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 16;    // tokens
constexpr int64_t kWidth = 64;    // channels of a tile: 4 cache lines of each row
constexpr int64_t kMaxTiles = 8;  // of a task

// Offsets in the scratch of a thread, in floats: dt, dt * u and y of a tile, the largest dt of each
// of its channels, constants of exp2, then A and h of the task's tiles.
constexpr int64_t kDu = kBlock * kWidth, kY = 2 * kDu, kDtMax = 3 * kDu,
                  kConstants = kDtMax + kWidth, kStates = kConstants + 64;

// A task's view: pointers to its first token and channel, row strides in floats.
struct ScanTask {
  int64_t tokens, width, d_state;
  const float *u, *delta, *z, *B, *C;  // z may be null
  int64_t u_row, delta_row, z_row, B_row, C_row;
  const float *D, *delta_bias;  // may be null
  const float* A;               // (tiles, d_state, kWidth) by the steps below
  float* h;
  int64_t A_tile, A_row, h_tile, h_row;
  float* out;
  int64_t out_row;
  bool softplus;
  float* scratch;
};

// One tile of a task for tokens [t0, t0 + tokens), channels [c0, c0 + width).
struct Tile {
  int64_t t0, tokens, c0, width;
};

// Calls body(c, count) for each vector of the tile, count < Lanes for the last one.
template <class Body>
HWY_INLINE void ForVectors(const Tile& tile, Body body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t c = 0;
  for (; c + lanes <= tile.width; c += lanes) body(c, lanes);
  if constexpr (hn::MaxLanes(hn::ScalableTag<float>()) > 1) {
    if (c < tile.width) body(c, tile.width - c);
  }
}

// `count` floats, zeros after them. Reads nothing behind the last one.
template <class D>
HWY_INLINE hn::Vec<D> LoadPart(D d, const float* from, int64_t count) {
  if (HWY_LIKELY(count == static_cast<int64_t>(hn::Lanes(d)))) return hn::LoadU(d, from);
  return WidenTail(d, from, static_cast<size_t>(count));
}
template <class D>
HWY_INLINE void StorePart(hn::Vec<D> v, D d, float* to, int64_t count) {
  if (HWY_LIKELY(count == static_cast<int64_t>(hn::Lanes(d)))) return hn::StoreU(v, d, to);
  StoreTail(v, d, to, static_cast<size_t>(count));
}

// dt, dt * u, the start of y, and the largest dt of each channel. Row by row, so that the 256 bytes
// of a row are used while they are at hand: rows may lie a multiple of 4 KB apart, where the L1
// cache holds 8 lines.
HWY_NOINLINE void PrepareTile(const ScanTask& s, const Tile& tile) {
  using D = hn::ScalableTag<float>;
  const D d;
  const FastExp<D> exp(d, s.scratch + kConstants);
  float* const dt_max = s.scratch + kDtMax;
  std::fill_n(dt_max, kWidth, 0.0f);
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const float* delta = s.delta + (tile.t0 + t) * s.delta_row + tile.c0;
    const float* row_u = s.u + (tile.t0 + t) * s.u_row + tile.c0;
    float* const scratch = s.scratch + t * kWidth;
    ForVectors(tile, [&](int64_t c, int64_t count) HWY_ATTR {
      auto dt = LoadPart(d, delta + c, count);
      if (s.delta_bias) dt = hn::Add(dt, LoadPart(d, s.delta_bias + tile.c0 + c, count));
      if (s.softplus) dt = SoftplusFrom(d, dt, exp.Exp(d, NegativeAbs(d, dt)));
      const auto u = LoadPart(d, row_u + c, count);
      hn::StoreU(dt, d, scratch + c);
      hn::StoreU(hn::Mul(dt, u), d, scratch + c + kDu);
      hn::StoreU(s.D ? hn::Mul(LoadPart(d, s.D + tile.c0 + c, count), u) : hn::Zero(d), d,
                 scratch + c + kY);
      hn::StoreU(hn::Max(dt, hn::LoadU(d, dt_max + c)), d, dt_max + c);
    });
  }
}

HWY_NOINLINE void WriteTile(const ScanTask& s, const Tile& tile) {
  using D = hn::ScalableTag<float>;
  const D d;
  const FastExp<D> exp(d, s.scratch + kConstants);
  for (int64_t t = 0; t < tile.tokens; ++t) {
    const float* row_z = s.z ? s.z + (tile.t0 + t) * s.z_row + tile.c0 : nullptr;
    float* out = s.out + (tile.t0 + t) * s.out_row + tile.c0;
    ForVectors(tile, [&](int64_t c, int64_t count) HWY_ATTR {
      auto y = hn::LoadU(d, s.scratch + t * kWidth + c + kY);
      if (row_z) {
        const auto z = LoadPart(d, row_z + c, count);
        y = hn::Mul(y, SiluFrom(d, z, exp.Exp(d, NegativeAbs(d, z))));
      }
      StorePart(y, d, out + c, count);
    });
  }
}

// How far a decay's exponent may lie from [-127, 0]: not at all, below it, anywhere (without
// softplus dt may be negative).
enum class Range { kInside, kBelow, kAnywhere };

// x[i] = 2^x[i]. A NaN in dt is in dt * u as well, so the decay need not carry it.
template <Range kRange, int kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Decays(D d, const FastExp<D>& exp, V (&x)[kCount]) {
  if constexpr (kRange == Range::kAnywhere) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) x[i] = hn::Min(x[i], hn::Set(d, 128.0f));
    Exp2Many(d, x);
  } else {
    exp.template Exp2<kRange == Range::kBelow>(d, x);
  }
}

// Advances kCount states, from n on, of the channels from c on.
template <int kCount, Range kRange, class D, class V = hn::Vec<D>>
HWY_INLINE void AdvanceStates(D d, const FastExp<D>& exp, const ScanTask& s, const Tile& tile,
                              int64_t c, int64_t n, const V (&A)[kCount], float* state) {
  V h[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) h[i] = hn::LoadU(d, state + i * s.h_row);
  const float* B = s.B + tile.t0 * s.B_row + n;
  const float* C = s.C + tile.t0 * s.C_row + n;
  const int64_t B_row = s.B_row, C_row = s.C_row;
  // dt, du and y lie one behind the other: one address serves all three.
  float* HWY_RESTRICT scratch = s.scratch + c;
  float* const end = scratch + tile.tokens * kWidth;
  for (; scratch != end; scratch += kWidth, B += B_row, C += C_row) {
    const V dt = hn::LoadU(d, scratch);
    const V du = hn::LoadU(d, scratch + kDu);
    V y = hn::LoadU(d, scratch + kY);
    V decay[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) decay[i] = hn::Mul(dt, A[i]);
    Decays<kRange>(d, exp, decay);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      h[i] = hn::MulAdd(h[i], decay[i], hn::Mul(du, hn::Set(d, B[i])));
      y = hn::MulAdd(h[i], hn::Set(d, C[i]), y);
    }
    hn::StoreU(y, d, scratch + kY);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) hn::StoreU(h[i], d, state + i * s.h_row);
}

// kCount states of the whole tile. Whether the exponents stay above -127 is decided for a block of
// tokens; both ways give the same bits.
template <int kCount>
HWY_NOINLINE void AdvanceTile(const ScanTask& s, const Tile& tile, int64_t n) {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FastExp<D> exp(d, s.scratch + kConstants);
  const float* A_rows = s.A + tile.c0 / kWidth * s.A_tile + n * s.A_row;
  float* h_rows = s.h + tile.c0 / kWidth * s.h_tile + n * s.h_row;
  for (int64_t c = 0; c < tile.width; c += lanes) {
    V A[kCount];
    V lowest = hn::Zero(d);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      A[i] = hn::LoadU(d, A_rows + i * s.A_row + c);
      lowest = hn::Min(lowest, A[i]);
    }
    lowest = hn::Mul(lowest, hn::LoadU(d, s.scratch + kDtMax + c));
    if (!s.softplus) {
      AdvanceStates<kCount, Range::kAnywhere>(d, exp, s, tile, c, n, A, h_rows + c);
    } else if (hn::AllTrue(d, hn::Ge(lowest, hn::Set(d, -127.0f)))) {
      AdvanceStates<kCount, Range::kInside>(d, exp, s, tile, c, n, A, h_rows + c);
    } else {
      AdvanceStates<kCount, Range::kBelow>(d, exp, s, tile, c, n, A, h_rows + c);
    }
  }
}

// Asks for rows [begin, end) of the next tile: too short pieces of too many pages for the hardware
// to see it coming.
HWY_INLINE void PrefetchRows(const ScanTask& s, const Tile& next, int64_t begin, int64_t end) {
  constexpr int64_t kLine = 16;
  for (int64_t t = next.t0 + begin; t < next.t0 + end; ++t) {
    for (int64_t c = next.c0; c < next.c0 + next.width; c += kLine) {
      hwy::Prefetch(s.delta + t * s.delta_row + c);
      hwy::Prefetch(s.u + t * s.u_row + c);
      if (s.z) hwy::Prefetch(s.z + t * s.z_row + c);
      hwy::Prefetch(s.out + t * s.out_row + c);
    }
  }
}

// The tile after (t0, c0) in the order of ScanTokens; no tokens if there is none.
HWY_INLINE Tile NextTile(const ScanTask& s, Tile tile) {
  tile.c0 += kWidth;
  if (tile.c0 >= s.width) {
    tile.c0 = 0;
    tile.t0 += kBlock;
  }
  tile.width = std::min(kWidth, s.width - tile.c0);
  tile.tokens = std::clamp<int64_t>(s.tokens - tile.t0, 0, kBlock);
  return tile;
}

void ScanTokens(const ScanTask& s) {
  constexpr int kGroup = FastExp<hn::ScalableTag<float>>::kSideBySide;
  Tile tile{0, std::min(kBlock, s.tokens), 0, std::min(kWidth, s.width)};
  while (tile.tokens > 0) {
    const Tile next = NextTile(s, tile);
    PrepareTile(s, tile);
    int64_t n = 0;
    for (; n + kGroup <= s.d_state; n += kGroup) {
      PrefetchRows(s, next, next.tokens * n / s.d_state, next.tokens * (n + kGroup) / s.d_state);
      AdvanceTile<kGroup>(s, tile, n);
    }
    for (; n < s.d_state; ++n) AdvanceTile<1>(s, tile, n);
    WriteTile(s, tile);
    tile = next;
  }
}

// (d_state, width) with rows `row` apart to (tiles, d_state, kWidth).
void CopyTiles(int64_t width, int64_t d_state, const float* from, int64_t row, float* to) {
  for (int64_t c = 0; c < width; c += kWidth) {
    for (int64_t n = 0; n < d_state; ++n) {
      std::copy_n(from + n * row + c, std::min(kWidth, width - c), to + c * d_state + n * kWidth);
    }
  }
}

}  // namespace

void SelectiveScan(const SelectiveScanArgs& a, CpuContext& context) {
  const int64_t d_inner = a.u.dim(1), groups = a.B.dim(1), d_state = a.B.dim(2);
  const int64_t channels = d_inner / groups;  // of a group
  // Two tasks for each thread, so that an uneven pair of cores finds something to balance.
  const int64_t tiles = (channels + kWidth - 1) / kWidth;
  const int64_t work = a.batch.n_seqs() * groups * tiles;
  const int64_t task_tiles = std::clamp<int64_t>(work / (2 * context.pool.size()), 1, kMaxTiles);
  const int64_t task_width = task_tiles * kWidth;
  const int64_t blocks = (channels + task_width - 1) / task_width;
  const int64_t tasks_per_seq = groups * blocks;
  context.reserve_scratch(static_cast<size_t>(kStates + 2 * task_width * d_state));

  const auto run = [&](int64_t begin, int64_t end, int thread) {
    float* scratch = context.scratch(thread);
    FillExpConstants(scratch + kConstants);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t seq = task / tasks_per_seq, group = task % tasks_per_seq / blocks;
      const int64_t c0 = group * channels + task % blocks * task_width;
      const int64_t t0 = a.batch.seq_start[static_cast<size_t>(seq)];
      const int64_t slot = a.batch.state_slot[static_cast<size_t>(seq)];
      ScanTask s;
      s.tokens = a.batch.seq_start[static_cast<size_t>(seq + 1)] - t0;
      s.width = std::min(task_width, (group + 1) * channels - c0);
      s.d_state = d_state;
      s.out_row = a.out.stride[0];
      s.out = a.out.ptr<float>() + t0 * s.out_row + c0;
      if (slot < 0) {
        for (int64_t t = 0; t < s.tokens; ++t) std::fill_n(s.out + t * s.out_row, s.width, 0.0f);
        continue;
      }
      s.u_row = a.u.stride[0];
      s.u = a.u.ptr<const float>() + t0 * s.u_row + c0;
      s.delta_row = a.delta.stride[0];
      s.delta = a.delta.ptr<const float>() + t0 * s.delta_row + c0;
      s.z_row = a.z.stride[0];
      s.z = a.z ? a.z.ptr<const float>() + t0 * s.z_row + c0 : nullptr;
      s.B_row = a.B.stride[0];
      s.B = a.B.ptr<const float>() + t0 * s.B_row + group * a.B.stride[1];
      s.C_row = a.C.stride[0];
      s.C = a.C.ptr<const float>() + t0 * s.C_row + group * a.C.stride[1];
      s.D = a.D ? a.D.ptr<const float>() + c0 : nullptr;
      s.delta_bias = a.delta_bias ? a.delta_bias.ptr<const float>() + c0 : nullptr;
      s.softplus = a.delta_softplus;
      s.scratch = scratch;

      const float* A = a.A_log2e.ptr<const float>() + c0;
      const int64_t A_row = a.A_log2e.stride[0];
      float* h = a.ssm_state.ptr<float>() + slot * a.ssm_state.stride[0] + c0;
      const int64_t h_row = a.ssm_state.stride[1];
      // Over several blocks A and h are used from a compact copy: their rows lie d_inner floats
      // apart, which for powers of two is one and the same set of the L1 cache. A tile that is not
      // made of whole vectors needs the room behind it.
      const bool ragged = s.width % static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>())) != 0;
      const bool compact = ragged || s.tokens > kBlock;
      if (compact) {
        float* A_copy = scratch + kStates;
        float* h_copy = A_copy + task_width * d_state;
        // Lanes beyond the last channel are computed and thrown away.
        if (ragged) {
          std::fill_n(scratch, kDtMax, 0.0f);
          std::fill_n(A_copy, 2 * task_width * d_state, 0.0f);
        }
        CopyTiles(s.width, d_state, A, A_row, A_copy);
        CopyTiles(s.width, d_state, h, h_row, h_copy);
        s.A = A_copy;
        s.h = h_copy;
        s.A_tile = s.h_tile = d_state * kWidth;
        s.A_row = s.h_row = kWidth;
      } else {
        s.A = A;
        s.h = h;
        s.A_tile = s.h_tile = kWidth;
        s.A_row = A_row;
        s.h_row = h_row;
      }
      ScanTokens(s);
      if (!compact) continue;
      for (int64_t c = 0; c < s.width; c += kWidth) {
        for (int64_t n = 0; n < d_state; ++n) {
          std::copy_n(s.h + c * d_state + n * kWidth, std::min(kWidth, s.width - c),
                      h + n * h_row + c);
        }
      }
    }
  };
  context.pool.parallel_for(a.batch.n_seqs() * tasks_per_seq, 1, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(SelectiveScan);

void cpu_selective_scan(const SelectiveScanArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, SelectiveScan)(args, context);
}

}  // namespace adder
#endif
