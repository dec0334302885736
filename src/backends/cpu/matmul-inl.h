// The matrix product for one float weight type, on packed panels (packed_weight.h): 32 outputs side
// by side, so that a sum stays in its lane, weights are one stream of memory, and x is broadcast.
//   few rows   weights are widened in registers as they come from memory
//   many rows  a piece of a panel is widened once, to the L1 cache, for all rows
// Both add in the same order.
#if defined(ADDER_BACKENDS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_MATMUL_INL_H_
#undef ADDER_BACKENDS_CPU_MATMUL_INL_H_
#else
#define ADDER_BACKENDS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/load-inl.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/packed_weight.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanel>;
using VF = hn::Vec<DF>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
inline constexpr int kPanelVectors = static_cast<int>(kPanel / kLanes);

// A register tile is rows x vectors of outputs. AVX2: 6 x 2 accumulators, 2 vectors of weights and
// one of x are 15 of 16 registers. One row needs 4 accumulators to hide the latency of an fma.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;
inline constexpr int kRows = kManyRegisters ? 8 : HWY_TARGET <= HWY_AVX2 ? 6 : 4;
inline constexpr int kWide = std::min(kPanelVectors, 4);    // up to 2 rows
inline constexpr int kNarrow = std::min(kPanelVectors, 2);  // more

// Up to this many rows weights are widened in registers: twice at most.
inline constexpr int64_t kDirectRows = 2 * kRows;
// Panels and rows of a piece of work with many rows: kSumBlock * 128 outputs are 128 KB of the L2
// cache, and a row of x comes from the L3 cache once for each piece.
inline constexpr int64_t kPiecePanels = 4, kPieceRows = 240;

// c[r, j] = from[r, j] + x[r] . w[:, j] for R rows, G vectors of outputs and one block along k.
// kStep: from one of k to the next in w. `from` is the bias (stride 0) or zeros for the first
// block, else c itself. kStream: w comes from memory.
template <int R, int G, int kStep, bool kStream, typename T>
HWY_INLINE void FloatTile(const float* HWY_RESTRICT x, int64_t x_stride, const T* HWY_RESTRICT w,
                          int64_t k, const float* from, int64_t from_stride, float* c,
                          int64_t c_stride, int64_t outs) {
  const DF d;
  VF acc[R][G];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) acc[r][g] = hn::Zero(d);
  }
  for (int64_t i = 0; i < k; ++i, w += kStep) {
    if constexpr (kStream) {
      constexpr int64_t kAhead = kStreamAhead / sizeof(T), kLine = 64 / sizeof(T);
#pragma GCC unroll 8
      for (int64_t j = 0; j < G * kLanes; j += kLine) hwy::Prefetch(w + kAhead + j);
    }
    VF wv[G];
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) wv[g] = WidenU(d, w + g * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VF xv = hn::Set(d, x[r * x_stride + i]);
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) acc[r][g] = hn::MulAdd(xv, wv[g], acc[r][g]);
    }
  }
  if (HWY_LIKELY(outs >= G * kLanes)) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, c += c_stride, from += from_stride) {
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        hn::StoreU(hn::Add(hn::LoadU(d, from + g * kLanes), acc[r][g]), d, c + g * kLanes);
      }
    }
    return;
  }
  for (int r = 0; r < R; ++r, c += c_stride, from += from_stride) {
    HWY_ALIGN float sums[G * kLanes];
    for (int g = 0; g < G; ++g) hn::Store(acc[r][g], d, sums + g * kLanes);
    for (int64_t j = 0; j < outs; ++j) c[j] = from[j] + sums[j];
  }
}

// One block along k of one panel, for any number of rows. kSplit: w is [panel / narrow][k][narrow]
// instead of [k][panel], with narrow = kNarrow * kLanes.
template <typename T, bool kSplit>
struct FloatBlock {
  const T* w;
  int64_t k;
  const float* from;  // null: c
  float* c;
  int64_t c_stride, outs;

  template <int R, int G>
  HWY_INLINE void Tiles(const float* x, int64_t x_stride, int64_t row) const {
    float* to = c + row * c_stride;
    for (int64_t j = 0; j < outs; j += G * kLanes) {
      FloatTile<R, G, (kSplit ? G * kLanes : kPanel), !kSplit>(
          x + row * x_stride, x_stride, w + (kSplit ? j * k : j), k, (from ? from : to) + j,
          from ? 0 : c_stride, to + j, c_stride, outs - j);
    }
  }

  template <int R>
  HWY_INLINE void Rest(const float* x, int64_t x_stride, int64_t row, int64_t rows) const {
    if (rows == R) return Tiles<R, (R <= 2 && !kSplit ? kWide : kNarrow)>(x, x_stride, row);
    if constexpr (R > 1) Rest<R - 1>(x, x_stride, row, rows);
  }

  void Run(const float* x, int64_t x_stride, int64_t rows) const {
    int64_t row = 0;
    for (; row + kRows <= rows; row += kRows) Tiles<kRows, kNarrow>(x, x_stride, row);
    if (row < rows) Rest<kRows - 1>(x, x_stride, row, rows - row);
  }
};

template <typename T>
struct FloatJob {
  const float* x;
  const T* weight;
  const float* bias;  // may be null
  float* out;
  int64_t x_stride, out_stride, n, k;

  // `rows` rows of one panel and block, from `row` on; w may be a widened copy, and xb a copy of
  // the block's part of x.
  template <bool kSplit, typename W>
  void Block(const float* xb, int64_t xb_stride, const W* w, int64_t begin, int64_t length,
             int64_t panel, int64_t row, int64_t rows) const {
    HWY_ALIGN static constexpr float kZeros[kPanel] = {};
    const int64_t first = panel * kPanel;
    const float* from = begin > 0 ? nullptr : bias ? bias + first : kZeros;
    FloatBlock<W, kSplit>{
        w, length, from, out + row * out_stride + first, out_stride, std::min(kPanel, n - first)}
        .Run(xb, xb_stride, rows);
  }

  const T* At(int64_t panel, int64_t begin) const { return weight + (panel * k + begin) * kPanel; }

  void Direct(int64_t panel, int64_t rows) const {
    int64_t begin = 0;
    do {  // once for k = 0 as well: out = bias
      const int64_t length = std::min(k - begin, kSumBlock);
      Block<false>(x + begin, x_stride, At(panel, begin), begin, length, panel, 0, rows);
      begin += kSumBlock;
    } while (begin < k);
  }

  // Copies x to [block along k][all_rows][kSumBlock]: rows that lie a multiple of 4 KB apart would
  // compete for the same lines of the L1 cache.
  void PackX(int64_t row_begin, int64_t row_end, int64_t all_rows, float* packed) const {
    for (int64_t begin = 0; begin < k; begin += kSumBlock) {
      const int64_t length = std::min(k - begin, kSumBlock);
      for (int64_t row = row_begin; row < row_end; ++row) {
        std::copy_n(x + row * x_stride + begin, length,
                    packed + begin * all_rows + row * kSumBlock);
      }
    }
  }

  // packed: null when x is used as it lies.
  void Piece(int64_t panel_begin, int64_t panel_end, int64_t row, int64_t rows, int64_t all_rows,
             const float* packed, float* widened) const {
    for (int64_t begin = 0; begin < k; begin += kSumBlock) {
      const int64_t length = std::min(k - begin, kSumBlock);
      const float* xb =
          packed ? packed + begin * all_rows + row * kSumBlock : x + row * x_stride + begin;
      const int64_t xb_stride = packed ? kSumBlock : x_stride;
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        WidenBlock(At(panel, begin), length, widened);
        Block<true>(xb, xb_stride, widened, begin, length, panel, row, rows);
      }
    }
  }

  // For float32 as well: read where it lies, every other line of memory would come twice, and all
  // of them from one half of the L1 cache.
  static void WidenBlock(const T* w, int64_t length, float* widened) {
    const DF d;
    constexpr int64_t kWidth = kNarrow * kLanes;
    for (int64_t i = 0; i < length; ++i, w += kPanel) {
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        hn::Store(WidenU(d, w + j), d, widened + (j / kWidth * length + i) * kWidth + j % kWidth);
      }
    }
  }
};

template <typename T>
void MatmulFewRows(const FloatJob<T>& job, int64_t rows, CpuContext& context) {
  const int64_t panels = (job.n + kPanel - 1) / kPanel;
  // A product below 32k multiplications takes less time than waking a thread.
  const int64_t grain = rows * job.n * job.k < 32768 ? panels : 1;
  context.pool.parallel_stream(panels, grain, [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) job.Direct(begin, rows);
  });
}

template <typename T>
void MatmulManyRows(const FloatJob<T>& job, int64_t rows, CpuContext& context) {
  float* packed = nullptr;
  if (job.k > kSumBlock) {
    packed = context.shared_scratch(
        static_cast<size_t>((job.k + kSumBlock - 1) / kSumBlock * kSumBlock * rows));
    context.pool.parallel_for(
        rows, 8, [&](int64_t begin, int64_t end, int) { job.PackX(begin, end, rows, packed); });
  }
  context.reserve_scratch(static_cast<size_t>(kSumBlock * kPanel));
  // Pieces of panels x rows; narrow products are cut into fewer panels and rows, so that every
  // thread gets about four pieces.
  const int64_t panels = (job.n + kPanel - 1) / kPanel;
  const int64_t wanted = int64_t{4} * context.pool.size();
  const int64_t row_pieces = (rows + kPieceRows - 1) / kPieceRows;
  const int64_t width = std::clamp(panels * row_pieces / wanted, int64_t{1}, kPiecePanels);
  const int64_t columns = (panels + width - 1) / width;
  const int64_t cuts = std::clamp((wanted + columns - 1) / columns, row_pieces,
                                  std::max(row_pieces, rows / (4 * kRows)));
  const int64_t height = ((rows + cuts - 1) / cuts + kRows - 1) / kRows * kRows;
  context.pool.parallel_for(columns * cuts, 1, [&](int64_t index, int64_t, int thread) {
    const int64_t panel = index / cuts * width, row = index % cuts * height;
    if (row >= rows) return;
    job.Piece(panel, std::min(panels, panel + width), row, std::min(height, rows - row), rows,
              packed, context.scratch(thread));
  });
}

template <typename T>
void MatmulT(const MatmulArgs& args, CpuContext& context) {
  const int64_t all_rows = args.x.dim(0);
  FloatJob<T> job{args.x.ptr<const float>(),
                  static_cast<const T*>(args.weight.data),
                  args.bias ? args.bias.ptr<const float>() : nullptr,
                  args.out.ptr<float>(),
                  args.x.stride[0],
                  args.out.stride[0],
                  args.weight.dim(0),
                  args.weight.dim(1)};
  if (all_rows <= kDirectRows || job.k == 0) return MatmulFewRows(job, all_rows, context);
  // Bounds the copy of x to 4 MB of the L3 cache, but for very long rows.
  const int64_t most = std::max(kPieceRows, (int64_t{1} << 20) / job.k / kRows * kRows);
  for (int64_t row = 0; row < all_rows; row += most) {
    MatmulManyRows(job, std::min(most, all_rows - row), context);
    job.x += most * job.x_stride;
    job.out += most * job.out_stride;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();
#endif
