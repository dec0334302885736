// The matrix product for one weight type, vectorised along k ("dot form"), so that weights are read
// as they lie in the checkpoint. Two ways, equal to the bit:
//   direct  few rows (decode): weights are read once from memory and widened in registers
//   packed  many rows (prefill): x and weights are copied to panels in which a register tile reads
//           one line after the other; weights are widened on the way, once for all rows
#if defined(ADDER_BACKENDS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_MATMUL_INL_H_
#undef ADDER_BACKENDS_CPU_MATMUL_INL_H_
#else
#define ADDER_BACKENDS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/load-inl.h"
#include "backends/cpu/matmul.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// Outputs of a register tile. Rows fill the register file: 3 * 4 accumulators, 3 vectors of x and
// one of weights are the 16 registers of AVX2; below it a product needs a register of its own.
inline constexpr int kOut = 4;
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;
inline constexpr int kRows = kManyRegisters ? 6 : HWY_TARGET == HWY_AVX2 ? 3 : 2;

// Up to this many rows weights are used as they lie.
inline constexpr int64_t kDirectRows = 12;
// Rows that share a panel of x in the L1 cache, and outputs of a panel of weights in the L2 cache
// (128 * 512 * 4 = 256 KB of 512 KB).
inline constexpr int64_t kGroupRows = 6;
inline constexpr int64_t kPanelOut = 128;
// Bound of the packed copy of x: 4 MB of the shared L3 cache.
inline constexpr int64_t kPackedFloats = int64_t{1} << 20;

HWY_INLINE int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// to[j] = from[j] + sum of the lanes of acc[j], j < 4. One order of additions for each target.
HWY_INLINE void AddLaneSums(const VF (&acc)[kOut], const float* from, float* to) {
#if HWY_TARGET == HWY_SCALAR
  HWY_UNROLL(8)
  for (int j = 0; j < kOut; ++j) to[j] = from[j] + hn::GetLane(acc[j]);
#else
  const DF d;
  const hn::RepartitionToWide<DF> wide;
  // Within blocks of 128 bits: (a0+a2, b0+b2, a1+a3, b1+b3) and the same for c and e, then the sums
  // of a, b, c, e side by side.
  const auto ab =
      hn::Add(hn::InterleaveLower(d, acc[0], acc[1]), hn::InterleaveUpper(d, acc[0], acc[1]));
  const auto ce =
      hn::Add(hn::InterleaveLower(d, acc[2], acc[3]), hn::InterleaveUpper(d, acc[2], acc[3]));
  const auto ab2 = hn::BitCast(wide, ab);
  const auto ce2 = hn::BitCast(wide, ce);
  const auto sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, ab2, ce2)),
                            hn::BitCast(d, hn::InterleaveUpper(wide, ab2, ce2)));
  const hn::Full128<float> d4;
#if HWY_TARGET == HWY_AVX2
  const auto total = hn::Add(hn::LowerHalf(sums), hn::UpperHalf(d4, sums));
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Half<DF> d8;
  const auto half = hn::Add(hn::LowerHalf(sums), hn::UpperHalf(d8, sums));
  const auto total = hn::Add(hn::LowerHalf(half), hn::UpperHalf(d4, half));
#else
  const auto total = sums;
#endif
  hn::StoreU(hn::Add(hn::LoadU(d4, from), total), d4, to);
#endif
}

// The same where only the first `count` of the four outputs exist.
HWY_INLINE void AddLaneSumsTail(const VF (&acc)[kOut], const float* from, float* to,
                                int64_t count) {
  HWY_ALIGN float sums[kOut] = {};
  std::copy_n(from, count, sums);
  AddLaneSums(acc, sums, sums);
  std::copy_n(sums, count, to);
}

template <int R>
HWY_INLINE void ZeroTile(VF (&acc)[R][kOut]) {
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kOut; ++j) acc[r][j] = hn::Zero(DF());
  }
}

// ---- direct ----

// out[r, n .. n + outs) = bias + x[r] . weight[n ...] for R rows and up to four outputs.
template <int R, typename T>
HWY_INLINE void DirectTile(const float* x, int64_t x_stride, const T* const (&w)[kOut], int64_t k,
                           int64_t block, const float* bias, float* out, int64_t out_stride,
                           int64_t outs) {
  const DF d;
  HWY_ALIGN float total[R][kOut] = {};
  if (bias != nullptr) {
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) std::copy_n(bias, outs, total[r]);
  }
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t end = std::min(k, begin + block);
    VF acc[R][kOut];
    ZeroTile(acc);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      VF xv[R];
      HWY_UNROLL(8)
      for (int r = 0; r < R; ++r) xv[r] = hn::LoadU(d, x + r * x_stride + i);
      HWY_UNROLL(8)
      for (int j = 0; j < kOut; ++j) {
        const VF wv = WidenU(d, w[j] + i);
        HWY_UNROLL(8)
        for (int r = 0; r < R; ++r) acc[r][j] = hn::MulAdd(xv[r], wv, acc[r][j]);
      }
    }
    if (i < end) {
      const size_t left = static_cast<size_t>(end - i);
      VF xv[R];
      HWY_UNROLL(8)
      for (int r = 0; r < R; ++r) xv[r] = WidenTail(d, x + r * x_stride + i, left);
      HWY_UNROLL(8)
      for (int j = 0; j < kOut; ++j) {
        const VF wv = WidenTail(d, w[j] + i, left);
        HWY_UNROLL(8)
        for (int r = 0; r < R; ++r) acc[r][j] = hn::MulAdd(xv[r], wv, acc[r][j]);
      }
    }
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) AddLaneSums(acc[r], total[r], total[r]);
  }
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) std::copy_n(total[r], outs, out + r * out_stride);
}

template <int R, typename T>
HWY_INLINE void DirectRows(int64_t rows, const float* x, int64_t x_stride,
                           const T* const (&w)[kOut], int64_t k, int64_t block, const float* bias,
                           float* out, int64_t out_stride, int64_t outs) {
  for (; rows >= R; rows -= R) {
    DirectTile<R>(x, x_stride, w, k, block, bias, out, out_stride, outs);
    x += R * x_stride;
    out += R * out_stride;
  }
  if constexpr (R > 1) {
    DirectRows<R - 1>(rows, x, x_stride, w, k, block, bias, out, out_stride, outs);
  }
}

template <typename T>
void MatmulDirect(const MatmulArgs& args, CpuContext& context) {
  const int64_t rows = args.x.dim(0), k = args.x.dim(1), n = args.weight.dim(0);
  const int64_t x_stride = args.x.stride[0], out_stride = args.out.stride[0];
  const int64_t w_stride = args.weight.stride[0];
  const float* x = args.x.ptr<const float>();
  const T* weight = args.weight.ptr<const T>();
  const float* bias = args.bias ? args.bias.ptr<const float>() : nullptr;
  float* out = args.out.ptr<float>();
  const int64_t block = sum_block(k);

  // Eight chunks a thread even out disturbances; a product below 32k multiplications takes less
  // time than waking a thread.
  const int64_t tiles = (n + kOut - 1) / kOut;
  const int64_t chunks = rows * n * k < 32768 ? 1 : int64_t{8} * context.pool.size();
  context.pool.parallel_for(
      tiles, (tiles + chunks - 1) / chunks, [&](int64_t begin, int64_t end, int) {
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t first = tile * kOut;
          const int64_t outs = std::min<int64_t>(kOut, n - first);
          const T* w[kOut];
          for (int64_t j = 0; j < kOut; ++j) {
            w[j] = weight + (first + std::min(j, outs - 1)) * w_stride;
          }
          DirectRows<kRows>(rows, x, x_stride, w, k, block, bias ? bias + first : nullptr,
                            out + first, out_stride, outs);
        }
      });
}

// ---- packed ----

// Copies `lines` rows of k elements to [step][lines][lane]. Missing elements become 0.
template <typename T>
HWY_INLINE void PackLines(const T* from, int64_t stride, int64_t lines, int64_t slots, int64_t k,
                          float* to) {
  const DF d;
  for (int64_t line = 0; line < slots; ++line) {
    float* column = to + line * kLanes;
    const int64_t step = slots * kLanes;
    int64_t i = 0;
    if (line >= lines) {
      for (; i < k; i += kLanes, column += step) hn::Store(hn::Zero(d), d, column);
      continue;
    }
    const T* row = from + line * stride;
    for (; i + kLanes <= k; i += kLanes, column += step) hn::Store(WidenU(d, row + i), d, column);
    if (i < k) hn::Store(WidenTail(d, row + i, static_cast<size_t>(k - i)), d, column);
  }
}

// c[r, j] = from[r, j] + x[r] . w[j] over one block; from is the bias for the first block, else c.
template <int R>
HWY_INLINE void PackedTile(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t steps,
                           const float* start, float* c, int64_t c_stride, int64_t outs) {
  const DF d;
  VF acc[R][kOut];
  ZeroTile(acc);
  for (int64_t s = 0; s < steps; ++s, x += R * kLanes, w += kOut * kLanes) {
    VF xv[R];
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) xv[r] = hn::Load(d, x + r * kLanes);
    HWY_UNROLL(8)
    for (int j = 0; j < kOut; ++j) {
      const VF wv = hn::Load(d, w + j * kLanes);
      HWY_UNROLL(8)
      for (int r = 0; r < R; ++r) acc[r][j] = hn::MulAdd(xv[r], wv, acc[r][j]);
    }
  }
  if (HWY_LIKELY(outs == kOut)) {
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r, c += c_stride) AddLaneSums(acc[r], start ? start : c, c);
  } else {
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r, c += c_stride) AddLaneSumsTail(acc[r], start ? start : c, c, outs);
  }
}

template <int R>
HWY_INLINE void PackedRows(int64_t rows, const float* x, const float* w, int64_t steps,
                           const float* start, float* c, int64_t c_stride, int64_t outs) {
  for (; rows >= R; rows -= R) {
    PackedTile<R>(x, w, steps, start, c, c_stride, outs);
    x += R * steps * kLanes;
    c += R * c_stride;
  }
  if constexpr (R > 1) PackedRows<R - 1>(rows, x, w, steps, start, c, c_stride, outs);
}

// One piece of work: rows [row_begin, row_end) of the packed x times outputs [first, last).
template <typename T>
struct PackedJob {
  const T* weight;
  int64_t w_stride, k, block;
  const float* bias;
  const float* x;  // panels: for each block of k, for each kRows rows: [step][row][lane]
  int64_t rows;    // all rows of the panels
  float* out;
  int64_t out_stride;

  void Run(int64_t row_begin, int64_t row_end, int64_t first, int64_t last, float* panel) const {
    HWY_ALIGN static constexpr float kZeros[kOut] = {};
    for (int64_t begin = 0; begin < k; begin += block) {
      const int64_t length = std::min(k - begin, block);
      const int64_t steps = (length + kLanes - 1) / kLanes;
      const int64_t tile_floats = kOut * steps * kLanes;
      for (int64_t n = first; n < last; n += kOut) {
        PackLines(weight + n * w_stride + begin, w_stride, std::min<int64_t>(kOut, last - n), kOut,
                  length, panel + (n - first) / kOut * tile_floats);
      }
      const float* x_block = x + rows * begin;
      for (int64_t row = row_begin; row < row_end; row += kGroupRows) {
        const int64_t group = std::min<int64_t>(kGroupRows, row_end - row);
        for (int64_t n = first; n < last; n += kOut) {
          const int64_t outs = std::min<int64_t>(kOut, last - n);
          const float* start = begin > 0 ? nullptr : bias ? bias + n : kZeros;
          PackedRows<kRows>(group, x_block + row * steps * kLanes,
                            panel + (n - first) / kOut * tile_floats, steps, start,
                            out + row * out_stride + n, out_stride, outs);
        }
      }
    }
  }
};

template <typename T>
void MatmulPacked(const MatmulArgs& args, CpuContext& context) {
  static_assert(kGroupRows % kRows == 0, "a group starts at a panel");
  const int64_t all_rows = args.x.dim(0), k = args.x.dim(1), n = args.weight.dim(0);
  const int64_t x_stride = args.x.stride[0], out_stride = args.out.stride[0];
  const int64_t block = sum_block(k);
  const int64_t padded_k = RoundUp(k, kLanes);  // blocks are whole vectors but for the last
  const int64_t chunk = std::min(
      all_rows,
      std::max<int64_t>(16 * kGroupRows, kPackedFloats / padded_k / kGroupRows * kGroupRows));
  float* packed = context.shared_scratch(static_cast<size_t>(chunk * padded_k));
  context.reserve_scratch(static_cast<size_t>(kPanelOut * std::min(block, padded_k)));

  for (int64_t row0 = 0; row0 < all_rows; row0 += chunk) {
    const int64_t rows = std::min(chunk, all_rows - row0);
    const float* x = args.x.ptr<const float>() + row0 * x_stride;
    const int64_t panels = (rows + kRows - 1) / kRows;
    context.pool.parallel_for(panels, 4, [&](int64_t panel_begin, int64_t panel_end, int) {
      for (int64_t begin = 0; begin < k; begin += block) {
        const int64_t length = std::min(k - begin, block);
        for (int64_t p = panel_begin; p < panel_end; ++p) {
          const int64_t row = p * kRows;
          const int64_t lines = std::min<int64_t>(kRows, rows - row);
          float* to = packed + rows * begin + row * RoundUp(length, kLanes);
          PackLines(x + row * x_stride + begin, x_stride, lines, lines, length, to);
        }
      }
    });

    const PackedJob<T> job{args.weight.ptr<const T>(),
                           args.weight.stride[0],
                           k,
                           block,
                           args.bias ? args.bias.ptr<const float>() : nullptr,
                           packed,
                           rows,
                           args.out.ptr<float>() + row0 * out_stride,
                           out_stride};
    // Narrow products are cut along the rows as well, so that every thread gets about four pieces.
    const int64_t columns = (n + kPanelOut - 1) / kPanelOut;
    const int64_t wanted = int64_t{4} * context.pool.size();
    const int64_t cuts = std::max<int64_t>(1, std::min(wanted / columns, rows / (4 * kGroupRows)));
    const int64_t piece = RoundUp((rows + cuts - 1) / cuts, kGroupRows);
    context.pool.parallel_for(columns * cuts, 1, [&](int64_t index, int64_t, int thread) {
      const int64_t first = index / cuts * kPanelOut, row = index % cuts * piece;
      if (row < rows)
        job.Run(row, std::min(rows, row + piece), first, std::min(n, first + kPanelOut),
                context.scratch(thread));
    });
  }
}

template <typename T>
void MatmulT(const MatmulArgs& args, CpuContext& context) {
  if (args.x.dim(0) <= kDirectRows || args.x.dim(1) == 0) {
    MatmulDirect<T>(args, context);
  } else {
    MatmulPacked<T>(args, context);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();
#endif
