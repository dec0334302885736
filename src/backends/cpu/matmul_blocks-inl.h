// The matrix product for one block format, on packed panels (packed_weight.h): x is rounded to
// int8 once, the products of a block of 32 are summed as integers, exactly, and each block is added
// in order along k to a float32 sum: sum = fma(dot, d_w * d_x, sum). So a result has the same bits
// in whatever tile, batch or vector length (where there is an fma).
#if defined(ADDER_BACKENDS_CPU_MATMUL_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ADDER_BACKENDS_CPU_MATMUL_BLOCKS_INL_H_
#undef ADDER_BACKENDS_CPU_MATMUL_BLOCKS_INL_H_
#else
#define ADDER_BACKENDS_CPU_MATMUL_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/int8_dot-inl.h"
#include "backends/cpu/load-inl.h"
#include "backends/cpu/matmul.h"
#include "core/quant.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
inline constexpr int kPanelVectors = static_cast<int>(kPanel / kLanes);
inline constexpr int kWide = std::min(kPanelVectors, 4);    // vectors of outputs for few rows
inline constexpr int kNarrow = std::min(kPanelVectors, 2);  // for more
// Up to so many rows are few: one pass over memory is worth it that some sums live in the L1 cache.
inline constexpr int kWideTileRows = 3;
template <DType kType>
inline constexpr bool kNibbleType = kType == DType::kQ4_0 || kType == DType::kQ4_K;
// Rows of a register tile. AVX2 has registers for 4 x 2 sums, with the weights and x; where signs
// are copied, for 3 x 2, as the magnitudes of the weights take some. kXBytes: of a value of x.
template <DType kType, int kXBytes>
inline constexpr int kTileRows = HWY_TARGET <= HWY_AVX3               ? 6
                                 : kNibbleType<kType> || kXBytes == 2 ? 4
                                                                      : 3;
// From so many rows on the wide way is the faster one: for fewer, weights are widened too often.
inline constexpr int64_t kWideRows = 24;

inline constexpr int64_t kPieceRows = 240;
// Blocks of 32 along k whose part of a panel stays in the L1 cache over all rows of a piece: 17 KB.
inline constexpr int64_t kPieceBlocks = 16;

// x rounded to int8, seen from its first row.
struct RoundedX {
  const uint8_t* q;    // [rows][k]: bytes changed by kFlipX, or int16 with each four in the order
                       // 0, 2, 1, 3 (kXBytes)
  const float* d;      // [rows][blocks]
  const int32_t* sum;  // [rows][blocks]: of the 32 values
  int64_t row_bytes, blocks;
};

// quantize_activations of one row, and the sums.
template <int kXBytes>
HWY_INLINE void RoundRow(const float* x, int64_t blocks, uint8_t* q, float* d, int32_t* sum) {
#if HWY_TARGET == HWY_SCALAR
  quantize_activations({x, static_cast<size_t>(blocks * 32)}, reinterpret_cast<int8_t*>(q), d);
  for (int64_t b = 0; b < blocks; ++b) {
    sum[b] = 0;
    for (int64_t i = 0; i < 32; ++i) sum[b] += reinterpret_cast<const int8_t*>(q)[b * 32 + i];
  }
#else
  constexpr int kVectors = static_cast<int>(32 / kLanes);
  const DF df;
  const DI di;
  const hn::Rebind<int8_t, DF> d8;
  const hn::Rebind<int16_t, DF> d16;
  for (int64_t b = 0; b < blocks; ++b, x += 32, q += 32 * kXBytes) {
    // The bits of |x| are ordered like |x|, with infinities and NaN on top.
    VI most = hn::Zero(di);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const auto bits = hn::BitCast(di, hn::Abs(hn::LoadU(df, x + v * kLanes)));
      most = hn::Max(most, bits);
    }
    const float largest = hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, most)));
    const float scale = largest / 127.0f;
    const bool finite = std::isfinite(largest);
    const bool usable = finite && scale >= std::numeric_limits<float>::min();
    d[b] = !finite ? std::numeric_limits<float>::quiet_NaN() : usable ? scale : 0.0f;
    VI total = hn::Zero(di);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      VI rounded = hn::Zero(di);
      if (usable)
        rounded = hn::NearestInt(hn::Div(hn::LoadU(df, x + v * kLanes), hn::Set(df, scale)));
      total = hn::Add(total, rounded);
      const auto words = hn::DemoteTo(d16, rounded);
#ifdef ADDER_INT8_WIDE
      if constexpr (kXBytes == 2)
        hn::StoreU(OrderPairs(words), d16, reinterpret_cast<int16_t*>(q) + v * kLanes);
#endif
      if constexpr (kXBytes == 1) {
        const auto bytes = hn::DemoteTo(d8, words);
        hn::StoreU(hn::Xor(bytes, hn::Set(d8, static_cast<int8_t>(kFlipX))), d8,
                   reinterpret_cast<int8_t*>(q) + v * kLanes);
      }
    }
    sum[b] = hn::GetLane(hn::SumOfLanes(di, total));
  }
#endif
}

// Where block b of a panel keeps what.
template <DType kType>
struct BlockView {
  static constexpr bool kNibbles = kNibbleType<kType>;
  static constexpr bool kSuper =
      kType == DType::kQ4_K || kType == DType::kQ5_K || kType == DType::kQ6_K;
  static constexpr bool kMin = kType == DType::kQ4_K || kType == DType::kQ5_K;
  static constexpr bool kHalves = kType == DType::kQ6_K;  // a scale for each half of the 32
  static constexpr int64_t kBlockBytes = 64 + (kNibbles ? 512 : 1024);
  static constexpr int64_t kHead = kMin ? 128 : 64;
  static constexpr int64_t kSuperBytes = kHead + 8 * kBlockBytes;

  const uint8_t *d, *scales, *q;

  BlockView(const uint8_t* panel, int64_t b) {
    if constexpr (kSuper) {
      d = panel + b / 8 * kSuperBytes;
      scales = d + kHead + b % 8 * kBlockBytes;
      q = scales + 64;
    } else {
      d = scales = panel + b * kBlockBytes;
      q = d + 64;
    }
  }

  // Of the outputs from j on. Half: 0 or 1, for Q6_K.
  HWY_INLINE VF Scale(int64_t j, int half) const {
    const DF df;
    const VF base = WidenU(df, reinterpret_cast<const hwy::float16_t*>(d) + j);
    if constexpr (!kSuper) return base;
    return hn::Mul(base, Small(half * kPanel + j));
  }
  HWY_INLINE VF Min(int64_t j) const {
    return hn::Mul(WidenU(DF(), reinterpret_cast<const hwy::float16_t*>(d) + kPanel + j),
                   Small(kPanel + j));
  }

 private:
  // The 8-bit scales or minima: signed in Q6_K.
  HWY_INLINE VF Small(int64_t j) const {
    const DF df;
    if constexpr (kHalves) {
      const hn::Rebind<int8_t, DF> d8;
      return hn::ConvertTo(
          df, hn::PromoteTo(DI(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(scales) + j)));
    } else {
      const hn::Rebind<uint8_t, DF> d8;
      return hn::ConvertTo(df, hn::PromoteTo(DI(), hn::LoadU(d8, scales + j)));
    }
  }
};

// dot[r][g] = sums of the quads [begin, end) of a block: all 8, or one half. The loops over quads
// stay loops, and the sums are tied to registers: else g++ adds up products in a tree, or makes
// them all before it adds, and keeps them in memory till then.
template <DType kType, int kXBytes, int kBegin, int kEnd, int R, int G>
HWY_INLINE void Dots(const BlockView<kType>& view, int64_t first, const uint8_t* x,
                     int64_t x_stride, VI (&dot)[R][G]) {
  constexpr bool kNibbles = BlockView<kType>::kNibbles;
  const uint8_t* q = view.q + first * 4;
  if constexpr (kNibbles && !kVnni) {
    Pairs pairs[R][G];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) pairs[r][g] = ZeroPairs();
    }
#pragma GCC unroll 1
    for (int j = 0; j < 4; ++j, q += kPanel * 4, x += 4) {
      Quads low[G], high[G];
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        const Quads both = LoadQuads(q + g * kLanes * 4);
        low[g] = LowNibbles(both);
        high[g] = HighNibbles(both);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Quads x_low = RepeatQuad(x + r * x_stride);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          pairs[r][g] = AddPairs(pairs[r][g], low[g], x_low);
          KeepInRegister(pairs[r][g]);
        }
        const Quads x_high = RepeatQuad(x + r * x_stride + 16);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          pairs[r][g] = AddPairs(pairs[r][g], high[g], x_high);
          KeepInRegister(pairs[r][g]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) dot[r][g] = SumPairs(pairs[r][g]);
    }
#ifdef ADDER_INT8_WIDE
  } else if constexpr (kXBytes == 2) {
    q += kBegin * kPanel * 4;
    x += kBegin * 8;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) dot[r][g] = hn::Zero(DI());
    }
#pragma GCC unroll 1
    for (int j = kBegin; j < kEnd; ++j, q += kPanel * 4, x += 8) {
      Pairs even[G], odd[G];
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        const Quads w = LoadQuads(q + g * kLanes * 4);
        even[g] = EvenPairs(w);
        odd[g] = OddPairs(w);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Pairs x_even = RepeatPair(x + r * x_stride);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          dot[r][g] = AddPairDot(dot[r][g], even[g], x_even);
          KeepInRegister(dot[r][g]);
        }
        const Pairs x_odd = RepeatPair(x + r * x_stride + 4);
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          dot[r][g] = AddPairDot(dot[r][g], odd[g], x_odd);
          KeepInRegister(dot[r][g]);
        }
      }
    }
#endif
  } else {
    static constexpr uint8_t kFlipped[4] = {kFlipX, kFlipX, kFlipX, kFlipX};
    VI offset[G];  // 128 times the sum of the weights, for VNNI
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      offset[g] = hn::Zero(DI());
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) dot[r][g] = hn::Zero(DI());
    }
    q += kBegin * kPanel * 4;
    x += kBegin * 4;
#pragma GCC unroll 1
    for (int j = kBegin; j < (kNibbles ? 4 : kEnd); ++j, q += kPanel * 4, x += 4) {
#pragma GCC unroll 2
      for (int half = 0; half < (kNibbles ? 2 : 1); ++half) {
        Quads w[G];
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) {
          w[g] = LoadQuads(q + g * kLanes * 4);
          if (kNibbles) w[g] = half == 0 ? LowNibbles(w[g]) : HighNibbles(w[g]);
          if constexpr (kVnni) offset[g] = AddDot(offset[g], w[g], RepeatQuad(kFlipped));
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Quads quads = RepeatQuad(x + r * x_stride + half * 16);
#pragma GCC unroll 8
          for (int g = 0; g < G; ++g) {
            dot[r][g] = AddDot(dot[r][g], w[g], quads);
            KeepInRegister(dot[r][g]);
          }
        }
      }
    }
    if constexpr (kVnni) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) dot[r][g] = hn::Sub(dot[r][g], offset[g]);
      }
    }
  }
}

// c[r, j] = from[r, j] + products of blocks [b0, b1) for R rows and G vectors of outputs from
// `first` on; `stream`: the panel comes from memory. `from` is the bias (stride 0) or zeros for the
// first block, else c itself.
template <DType kType, int kXBytes, int R, int G>
HWY_INLINE void BlockTile(const RoundedX& x, const uint8_t* panel, int64_t first, int64_t b0,
                          int64_t b1, const float* from, int64_t from_stride, float* c,
                          int64_t c_stride, int64_t outs, bool stream) {
  const DF df;
  using View = BlockView<kType>;
  const bool whole = outs >= G * kLanes;
  HWY_ALIGN float part[R][G * kLanes];  // where some of the outputs do not exist
  VF sum[R][G];
  if (!whole) {
    for (int r = 0; r < R; ++r) {
      std::fill_n(part[r], G * kLanes, 0.0f);
      std::copy_n(from + r * from_stride, outs, part[r]);
    }
    from = part[0];
    from_stride = G * kLanes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) sum[r][g] = hn::LoadU(df, from + r * from_stride + g * kLanes);
  }
  for (int64_t b = b0; b < b1; ++b) {
    const View view(panel, b);
    if (stream) {
      const uint8_t* ahead = view.scales + kStreamAhead;
      for (int64_t i = 0; i < View::kBlockBytes; i += 64) hwy::Prefetch(ahead + i);
    }
    const uint8_t* xq = x.q + b * 32 * kXBytes;
    if constexpr (View::kHalves) {
      VI low[R][G], high[R][G];
      Dots<kType, kXBytes, 0, 4>(view, first, xq, x.row_bytes, low);
      Dots<kType, kXBytes, 4, 8>(view, first, xq, x.row_bytes, high);
#pragma GCC unroll 8
      for (int g = 0; g < G; ++g) {
        const VF s0 = view.Scale(first + g * kLanes, 0), s1 = view.Scale(first + g * kLanes, 1);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const VF d = hn::Set(df, x.d[r * x.blocks + b]);
          sum[r][g] = hn::MulAdd(hn::ConvertTo(df, low[r][g]), hn::Mul(s0, d), sum[r][g]);
          sum[r][g] = hn::MulAdd(hn::ConvertTo(df, high[r][g]), hn::Mul(s1, d), sum[r][g]);
        }
      }
      continue;
    }
    VI dot[R][G];
    Dots<kType, kXBytes, 0, 8>(view, first, xq, x.row_bytes, dot);
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      const VF scale = view.Scale(first + g * kLanes, 0);
      VF min;
      if constexpr (View::kMin) min = view.Min(first + g * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VF d = hn::Set(df, x.d[r * x.blocks + b]);
        if constexpr (kType == DType::kQ4_0) {
          dot[r][g] = hn::Sub(dot[r][g], hn::Set(DI(), 8 * x.sum[r * x.blocks + b]));
        }
        sum[r][g] = hn::MulAdd(hn::ConvertTo(df, dot[r][g]), hn::Mul(scale, d), sum[r][g]);
        if constexpr (View::kMin) {
          const VF total =
              hn::Set(df, x.d[r * x.blocks + b] * static_cast<float>(x.sum[r * x.blocks + b]));
          sum[r][g] = hn::NegMulAdd(min, total, sum[r][g]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* to = whole ? c + r * c_stride : part[r];
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) hn::StoreU(sum[r][g], df, to + g * kLanes);
    if (!whole) std::copy_n(part[r], outs, c + r * c_stride);
  }
}

template <DType kType, int kXBytes>
struct BlockJob {
  static constexpr int kRows = kTileRows<kType, kXBytes>;
  template <int R>
  static constexpr int kVectors = R <= kWideTileRows ? kWide : kNarrow;

  RoundedX x;
  const uint8_t* weight;
  size_t panel_bytes;
  const float* bias;  // may be null
  float* out;
  int64_t out_stride, n;

  template <int R, int G>
  HWY_INLINE void Tiles(int64_t panel, int64_t row, int64_t b0, int64_t b1, bool stream) const {
    HWY_ALIGN static constexpr float kZeros[kPanel] = {};
    const RoundedX here{x.q + row * x.row_bytes, x.d + row * x.blocks, x.sum + row * x.blocks,
                        x.row_bytes, x.blocks};
    const int64_t first = panel * kPanel, outs = std::min(kPanel, n - first);
    const float* from = b0 > 0 ? nullptr : bias ? bias + first : kZeros;
    float* c = out + row * out_stride + first;
    for (int64_t j = 0; j < outs; j += G * kLanes) {
      BlockTile<kType, kXBytes, R, G>(here, weight + static_cast<size_t>(panel) * panel_bytes, j,
                                      b0, b1, (from ? from : c) + j, from ? 0 : out_stride, c + j,
                                      out_stride, outs - j, stream && j == 0);
    }
  }

  template <int R>
  HWY_INLINE void Rest(int64_t panel, int64_t row, int64_t rows, int64_t b0, int64_t b1,
                       bool stream) const {
    if (rows == R) return Tiles<R, kVectors<R>>(panel, row, b0, b1, stream);
    if constexpr (R > 1) Rest<R - 1>(panel, row, rows, b0, b1, stream);
  }

  // Rows [row, end) of one panel.
  void Run(int64_t panel, int64_t row, int64_t end) const {
    const int64_t most = end - row > kRows ? kPieceBlocks : x.blocks;
    int64_t b0 = 0;
    do {  // once for k = 0 as well: out = bias
      const int64_t b1 = std::min(x.blocks, b0 + most);
      int64_t r = row;
      for (; r + kRows <= end; r += kRows)
        Tiles<kRows, kVectors<kRows>>(panel, r, b0, b1, r == row);
      if (r < end) Rest<kRows - 1>(panel, r, end - r, b0, b1, r == row);
      b0 = b1;
    } while (b0 < x.blocks);
  }
};

template <DType kType, int kXBytes>
void MatmulBlocksWith(const MatmulArgs& args, CpuContext& context) {
  constexpr int kRows = kTileRows<kType, kXBytes>;
  const int64_t rows = args.x.dim(0), k = args.x.dim(1), n = args.weight.dim(0);
  const int64_t blocks = k / kActivationBlock;
  // q, then d and sum, in one scratch of floats.
  const int64_t row_bytes = k * kXBytes, q_floats = (rows * row_bytes + 3) / 4;
  float* scratch = context.shared_scratch(static_cast<size_t>(q_floats + 2 * rows * blocks));
  auto* q = reinterpret_cast<uint8_t*>(scratch);
  float* d = scratch + q_floats;
  auto* sum = reinterpret_cast<int32_t*>(d + rows * blocks);
  const float* x = args.x.ptr<const float>();
  // Rounding 16,000 values takes less time than waking a thread.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, k));
  context.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      RoundRow<kXBytes>(x + r * args.x.stride[0], blocks, q + r * row_bytes, d + r * blocks,
                        sum + r * blocks);
    }
  });

  const BlockJob<kType, kXBytes> job{{q, d, sum, row_bytes, blocks},
                                     static_cast<const uint8_t*>(args.weight.data),
                                     panel_bytes(kType, k),
                                     args.bias ? args.bias.ptr<const float>() : nullptr,
                                     args.out.ptr<float>(),
                                     args.out.stride[0],
                                     n};
  const int64_t panels = (n + kPanel - 1) / kPanel;
  if (rows <= 4 * kRows) {
    // A product below 64k multiplications takes less time than waking a thread.
    const int64_t panel_grain = rows * n * k < 65536 ? panels : 1;
    context.pool.parallel_stream(panels, panel_grain, [&](int64_t begin, int64_t end, int) {
      for (; begin < end; ++begin) job.Run(begin, 0, rows);
    });
    return;
  }
  // Narrow products are cut along the rows as well, so that every thread gets about four pieces.
  const int64_t threads = context.pool.size();
  const int64_t row_pieces = (rows + kPieceRows - 1) / kPieceRows;
  const int64_t cuts = std::clamp((4 * threads + panels - 1) / std::max<int64_t>(1, panels),
                                  row_pieces, std::max(row_pieces, rows / (4 * kRows)));
  const int64_t height = ((rows + cuts - 1) / cuts + kRows - 1) / kRows * kRows;
  context.pool.parallel_stream(panels * cuts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % cuts * height;
      if (row < rows) job.Run(i / cuts, row, std::min(rows, row + height));
    }
  });
}

template <DType kType>
void MatmulBlocks(const MatmulArgs& args, CpuContext& context) {
  if constexpr (kWideX && !kNibbleType<kType>)
    if (args.x.dim(0) >= kWideRows) return MatmulBlocksWith<kType, 2>(args, context);
  MatmulBlocksWith<kType, 1>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();
#endif
