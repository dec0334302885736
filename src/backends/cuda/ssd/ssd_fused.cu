// Second launch of ssd_fused: a block walks the chunks of a strip of columns (h, p) of one
// sequence. Two warps have 16 columns, half of the states n each, all by themselves: their state in
// the accumulators of the tensor cores, and their outputs. Per chunk, with rows l, s of it:
//
//   M[l, s]  = C[l] . B[s] * 2^(sum(l) - sum(s)) * dt(s), 0 for s > l      shared by a head's warps
//   y[l, p]  = 2^sum(l) * (C S^T)[l, p] + (M x)[l, p]                      added up by the two
//   S[p, n]  = 2^sum(last) * S[p, n] + ((dt 2^(sum(last) - sum)) x)^T B
//
// The accumulators of S (p, n) are, register by register, the right operand of C S^T, and x is the
// right operand of M x and, weighed, the left one of x^T B at the same places of the same lanes:
// neither goes through shared memory between products. C B^T, B and C come from ssd_prepare.cu.
//
// Shared memory holds one chunk. C, C B^T, x and the decays of the next chunk are copied while the
// states are updated, B while the outputs are made, so every copy has half a chunk's time.
//
// Derived, per chunk and warp at N 128: 32 tile products C S^T (4 x 2 x 4), 10 of M x, 32 of the
// update, each 2 mma_16x8x16 for bfloat16 and 6 for float32: 148 and 444, or 18.5 and 55.5 per
// token-head of P 64. Exponentials per token-head: 40 of M, 32 of 2^sum(l), 2 in the first launch,
// and silu.
#include "backends/cuda/ssd/ssd_fused.cuh"
#include "backends/cuda/ssd/ssd_vectors.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kSharing = 2;                      // warps that have the same columns
constexpr int kOwnTiles = kRowTiles / kSharing;  // row tiles of outputs that each of them writes

// kHeads heads, kWidth columns of each.
template <typename T, int N, int kWidth, int kHeads>
struct FusedBlock {
  static constexpr int kWarpsPerHead = kSharing * kWidth / 16, kWarps = kWarpsPerHead * kHeads,
                       kThreads = kWarps * kWarpSize;
  static constexpr int kExact = PartCount<T>::kExact, kDerived = PartCount<T>::kDerived;
  // x is read down its columns: lanes g and i take column g of rows 2 i and 2 i + 1, which this
  // distance of rows keeps apart: 2 rows are 8 banks (32 bytes) more than a multiple of all 32.
  static constexpr int kPitch = kWidth + 16 / static_cast<int>(sizeof(T));
  static_assert(2 * kPitch * sizeof(T) % 128 == 32);

  // C B^T arrives in the first parts of its tile of M, and a lane replaces what is its own.
  union TileOfM {
    AccumulatorTile CB;
    FragmentTile parts[kDerived];
  };
  static_assert(sizeof(TileOfM) == kDerived * sizeof(FragmentTile));

  struct Shared {
    FragmentTile C[kRowTiles][N / 16][kExact];
    FragmentTile B[N / 16][kRowTiles][kExact];
    TileOfM M[kHeads][kCausalTiles];
    SsdDecay decay[kHeads][kSsdChunk];
    float4 partial[kWarps][kOwnTiles][2][kWarpSize];  // of outputs, for the other warp
    alignas(16) T x[kHeads][kSsdChunk][kPitch];
  };
};

template <int kThreads, typename To>
__device__ __forceinline__ void copy_all(To& to, const To& from) {
  static_assert(sizeof(To) % 16 == 0);
  ADDER_ROLLED
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(To) / 16); i += kThreads)
    cp_async<16>(reinterpret_cast<uint4*>(&to) + i, reinterpret_cast<const uint4*>(&from) + i);
}

// Where a block is: its sequence, its first head and column, and the place of a warp in it.
struct FusedPlace {
  int64_t sequence, begin, rows, slot;
  int64_t head, column;
};

// Everything of a chunk but B. `count` rows; the rest of x and of the decays becomes 0.
template <typename T, int N, int kWidth, int kHeads>
__device__ __forceinline__ void copy_chunk(
    typename FusedBlock<T, N, kWidth, kHeads>::Shared& shared, const FusedParams<T>& q,
    const FusedPlace& at, const GroupChunk<T, N>& chunk, int64_t first, int count) {
  constexpr int kThreads = FusedBlock<T, N, kWidth, kHeads>::kThreads;
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  const SsdParams<T>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x);
  copy_all<kThreads>(shared.C, chunk.C);
  ADDER_ROLLED
  for (int head = 0; head < kHeads; ++head) {
    constexpr int kTileVectors = sizeof(AccumulatorTile) / 16;
    ADDER_ROLLED
    for (int e = thread; e < kCausalTiles * kTileVectors; e += kThreads) {
      const int tile = e / kTileVectors, at_vector = e % kTileVectors;
      cp_async<16>(&shared.M[head][tile].CB.half[0][0] + at_vector,
                   &chunk.CB[tile].half[0][0] + at_vector);
    }
    const int64_t h = at.head + head;
    const SsdDecay* decay = q.decays + h * p.batch.n_tokens + first;
    ADDER_ROLLED
    for (int r = thread; r < kSsdChunk; r += kThreads)
      cp_async<16>(&shared.decay[head][r], decay + (r < count ? r : 0), r < count ? 16 : 0);
    const T* x = p.x + first * p.x_row + h * p.x_head + at.column;
    if (q.x_vectors) {
      ADDER_ROLLED
      for (int e = thread; e < kSsdChunk * kWidth / kVector; e += kThreads) {
        const int r = e / (kWidth / kVector), c = e % (kWidth / kVector) * kVector;
        cp_async<16>(&shared.x[head][r][c], x + (r < count ? r * p.x_row + c : 0),
                     r < count ? 16 : 0);
      }
    } else {
      ADDER_ROLLED
      for (int e = thread; e < kSsdChunk * kWidth; e += kThreads) {
        const int r = e / kWidth, c = e % kWidth;
        shared.x[head][r][c] = r < count ? x[r * p.x_row + c] : from_float<T>(0);
      }
    }
  }
}

// C B^T of one head becomes M, in parts, tile by tile.
template <int kWarps, typename Tile>
__device__ __forceinline__ void make_M(Tile (&M)[kCausalTiles], const SsdDecay (&decay)[kSsdChunk],
                                       int warp, int lane) {
  constexpr int kParts = static_cast<int>(sizeof(Tile) / sizeof(FragmentTile));
  const int g = lane / 4, i = lane % 4;
  for (int tile = warp; tile < kCausalTiles; tile += kWarps) {
    const int row_tile = tile >= 6 ? 3 : tile >= 3 ? 2 : tile >= 1 ? 1 : 0;
    const int column_tile = tile - causal_tile(row_tile, 0);
    uint32_t a[kParts][4];
    float4 CB[2];
    for (int half = 0; half < 2; ++half) CB[half] = M[tile].CB.half[half][lane];
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int s = 16 * column_tile + 8 * half + 2 * i;
      const SsdDecay left = decay[s], right = decay[s + 1];
      ADDER_UNROLL
      for (int down = 0; down < 2; ++down) {
        const int l = 16 * row_tile + 8 * down + g;
        const SsdDecay row = decay[l];
        const float low = down == 0 ? CB[half].x : CB[half].z;
        const float high = down == 0 ? CB[half].y : CB[half].w;
        uint32_t pair[kParts];
        split_pair(s <= l ? low * decay_between(row, left) * left.dt : 0.0f,
                   s + 1 <= l ? high * decay_between(row, right) * right.dt : 0.0f, pair);
        ADDER_UNROLL
        for (int part = 0; part < kParts; ++part) a[part][2 * half + down] = pair[part];
      }
    }
    ADDER_UNROLL
    for (int part = 0; part < kParts; ++part)
      M[tile].parts[part].lane[lane] = make_uint4(a[part][0], a[part][1], a[part][2], a[part][3]);
  }
}

// y += M[., column tile k] x, of 16 columns: y[row tile][column half].
template <int k, typename T, typename Tile>
__device__ __forceinline__ void add_inputs(float (&y)[kRowTiles][2][4],
                                           const Tile (&M)[kCausalTiles], const T* x, int pitch,
                                           int lane) {
  constexpr int kExact = PartCount<T>::kExact, kDerived = PartCount<T>::kDerived;
  const int g = lane / 4, i = lane % 4;
  uint32_t b[2][kExact][2];
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    ADDER_UNROLL
    for (int r = 0; r < 2; ++r) {
      const T* at = x + (16 * k + 2 * i + 8 * r) * pitch + 8 * half + g;
      uint32_t pair[kExact];
      split_pair(to_float(at[0]), to_float(at[pitch]), pair);
      ADDER_UNROLL
      for (int part = 0; part < kExact; ++part) b[half][part][r] = pair[part];
    }
  }
  ADDER_UNROLL
  for (int m = k; m < kRowTiles; ++m) {
    uint32_t a[kDerived][4];
    ADDER_UNROLL
    for (int part = 0; part < kDerived; ++part)
      load_fragment(M[causal_tile(m, k)].parts[part], lane, a[part]);
    multiply_parts(y[m][0], a, b[0]);
    multiply_parts(y[m][1], a, b[1]);
  }
}

// What one of two warps adds to y of 64 rows and 16 columns, without D: C S^T over its half of the
// states, and M x over two column tiles of M, which are five tiles for either.
template <typename T, int N, typename Shared, typename Tile>
__device__ __forceinline__ void make_outputs(float (&y)[kRowTiles][2][4],
                                             const float (&S)[N / 16][4], const Shared& shared,
                                             const Tile (&M)[kCausalTiles],
                                             const SsdDecay (&decay)[kSsdChunk], const T* x,
                                             int pitch, int share, int lane) {
  constexpr int kExact = PartCount<T>::kExact, kDerived = PartCount<T>::kDerived;
  const int g = lane / 4;
  ADDER_UNROLL
  for (int k = 0; k < N / 32; ++k) {
    uint32_t b[2][kDerived][2];
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      ADDER_UNROLL
      for (int r = 0; r < 2; ++r) {
        uint32_t pair[kDerived];
        split_pair(S[2 * k + r][2 * half], S[2 * k + r][2 * half + 1], pair);
        ADDER_UNROLL
        for (int part = 0; part < kDerived; ++part) b[half][part][r] = pair[part];
      }
    }
    ADDER_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      uint32_t a[kExact][4];
      ADDER_UNROLL
      for (int part = 0; part < kExact; ++part)
        load_fragment(shared.C[m][share * (N / 32) + k][part], lane, a[part]);
      multiply_parts(y[m][0], a, b[0]);
      multiply_parts(y[m][1], a, b[1]);
    }
  }
  ADDER_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    const float upper = decay_from_start(decay[16 * m + g]);
    const float lower = decay_from_start(decay[16 * m + g + 8]);
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      y[m][half][0] *= upper, y[m][half][1] *= upper;
      y[m][half][2] *= lower, y[m][half][3] *= lower;
    }
  }
  if (share == 0) {
    add_inputs<0>(y, M, x, pitch, lane);
    add_inputs<3>(y, M, x, pitch, lane);
  } else {
    add_inputs<1>(y, M, x, pitch, lane);
    add_inputs<2>(y, M, x, pitch, lane);
  }
}

// The sum of two warps' outputs: each hands two row tiles over and gets the other two.
template <typename Partial>
__device__ __forceinline__ void add_outputs(float (&sum)[kOwnTiles][2][4],
                                            const float (&y)[kRowTiles][2][4], Partial& partial,
                                            int warp, int share, int lane) {
  ADDER_UNROLL
  for (int m = 0; m < kOwnTiles; ++m) {
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      float given[4];
      ADDER_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float upper = y[m][half][e], lower = y[m + kOwnTiles][half][e];
        sum[m][half][e] = share == 0 ? upper : lower;
        given[e] = share == 0 ? lower : upper;
      }
      partial[warp][m][half][lane] = make_float4(given[0], given[1], given[2], given[3]);
    }
  }
  named_barrier(1 + warp / kSharing, kSharing * kWarpSize);
  ADDER_UNROLL
  for (int m = 0; m < kOwnTiles; ++m) {
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float4 v = partial[warp ^ 1][m][half][lane];
      sum[m][half][0] += v.x, sum[m][half][1] += v.y;
      sum[m][half][2] += v.z, sum[m][half][3] += v.w;
    }
  }
}

// out = (y + D x) gated, for 16 columns from `column` of head h on and row tiles from `row_tile`
// on.
template <typename T>
__device__ __forceinline__ void write_outputs(const float (&y)[kOwnTiles][2][4], int row_tile,
                                              const FusedParams<T>& q, int64_t h, int64_t column,
                                              int64_t first, int count, const T* x, int pitch,
                                              int lane) {
  const SsdParams<T>& p = q.p;
  const int g = lane / 4, i = lane % 4;
  ADDER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int c = 8 * half + 2 * i;
    const float2 skip = make_float2(ssd_skip(p, h, column + c), ssd_skip(p, h, column + c + 1));
    ADDER_UNROLL
    for (int m = 0; m < kOwnTiles; ++m) {
      ADDER_UNROLL
      for (int down = 0; down < 2; ++down) {
        const int l = 16 * (row_tile + m) + 8 * down + g;
        if (l >= count) continue;
        const float2 input = load2(x + l * pitch + c, true);
        float2 v = make_float2(fmaf(skip.x, input.x, y[m][half][2 * down]),
                               fmaf(skip.y, input.y, y[m][half][2 * down + 1]));
        if (p.z != nullptr) {
          const float2 z =
              load2(p.z + (first + l) * p.z_row + h * p.z_head + column + c, q.z_pairs);
          v.x *= silu(z.x), v.y *= silu(z.y);
        }
        store2(p.out + (first + l) * p.out_row + h * p.out_head + column + c, v, q.out_pairs);
      }
    }
  }
}

// x^T with its weights, as the left operand of the state's update: a[row tile][part].
template <typename T>
__device__ __forceinline__ void weigh_x(uint32_t (&a)[kRowTiles][PartCount<T>::kDerived][4],
                                        const SsdDecay (&decay)[kSsdChunk], const T* x, int pitch,
                                        int lane) {
  constexpr int kDerived = PartCount<T>::kDerived;
  const int g = lane / 4, i = lane % 4;
  ADDER_UNROLL
  for (int k = 0; k < kRowTiles; ++k) {
    ADDER_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int s = 16 * k + 2 * i + r / 2 * 8;
      const T* at = x + s * pitch + g + r % 2 * 8;
      uint32_t pair[kDerived];
      split_pair(to_float(at[0]) * decay[s].to_end, to_float(at[pitch]) * decay[s + 1].to_end,
                 pair);
      ADDER_UNROLL
      for (int part = 0; part < kDerived; ++part) a[k][part][r] = pair[part];
    }
  }
}

// S = total * S + a B, for a warp's half of the states. The sum over the chunk starts from 0 and is
// added once: the tensor cores may cut off what is below the last place of a sum, which must not
// pile up in the state.
template <typename T, int N, typename Shared>
__device__ __forceinline__ void update_states(
    float (&S)[N / 16][4], const uint32_t (&a)[kRowTiles][PartCount<T>::kDerived][4],
    const Shared& shared, float total, int share, int lane) {
  constexpr int kExact = PartCount<T>::kExact;
  constexpr int kTogether = 2;  // tiles of 16: four sums, to hide the latency of each
  ADDER_UNROLL
  for (int n16 = 0; n16 < N / 32; n16 += kTogether) {
    float sum[2 * kTogether][4] = {};
    ADDER_UNROLL
    for (int k = 0; k < kRowTiles; ++k) {
      ADDER_UNROLL
      for (int tile = 0; tile < kTogether; ++tile) {
        uint32_t left[kExact][2], right[kExact][2];
        ADDER_UNROLL
        for (int part = 0; part < kExact; ++part) {
          uint32_t b[4];
          load_fragment(shared.B[share * (N / 32) + n16 + tile][k][part], lane, b);
          left[part][0] = b[0], left[part][1] = b[1];
          right[part][0] = b[2], right[part][1] = b[3];
        }
        multiply_parts(sum[2 * tile], a[k], left);
        multiply_parts(sum[2 * tile + 1], a[k], right);
      }
    }
    ADDER_UNROLL
    for (int j = 0; j < 2 * kTogether; ++j) {
      ADDER_UNROLL
      for (int e = 0; e < 4; ++e) S[2 * n16 + j][e] = fmaf(total, S[2 * n16 + j][e], sum[j][e]);
    }
  }
}

template <typename T, int N, int kWidth, int kHeads>
__global__ void __launch_bounds__(FusedBlock<T, N, kWidth, kHeads>::kThreads)
    ssd_fused_kernel(FusedParams<T> q) {
  using Block = FusedBlock<T, N, kWidth, kHeads>;
  constexpr int kThreads = Block::kThreads;
  auto& shared = shared_memory<typename Block::Shared>();
  const SsdParams<T>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize,
            warp = thread / kWarpSize, g = lane / 4, i = lane % 4;
  const int64_t strips = p.headdim / kWidth;
  const auto [begin, length, slot] = ssd_sequence(p, blockIdx.y);
  const FusedPlace at{blockIdx.y,
                      begin,
                      ssd_chunked_rows(length),
                      slot,
                      int64_t{blockIdx.x} / strips * kHeads,
                      int64_t{blockIdx.x} % strips * kWidth};
  const int head = warp / Block::kWarpsPerHead, in_head = warp % Block::kWarpsPerHead;
  const int share = in_head % kSharing, strip_column = in_head / kSharing * 16;
  const int64_t h = at.head + head, column = at.column + strip_column;
  if (at.rows == 0) return;
  if (at.slot < 0) {
    for (int64_t r = 2 * share + lane / 16; r < at.rows; r += 2 * kSharing)
      p.out[(at.begin + r) * p.out_row + h * p.out_head + column + lane % 16] = from_float<T>(0);
    return;
  }

  float* state = p.ssm_state + at.slot * p.state_slot + h * p.state_head +
                 (column + g) * p.state_p + share * (N / kSharing) + 2 * i;
  float S[N / 16][4];
  ADDER_UNROLL
  for (int j = 0; j < N / 16; ++j) {
    ADDER_UNROLL
    for (int e = 0; e < 4; ++e) S[j][e] = state[e / 2 * 8 * p.state_p + 8 * j + e % 2];
  }

  const auto* chunks = static_cast<const GroupChunk<T, N>*>(q.chunks) +
                       first_chunk_slot(p, at.sequence) * p.n_groups + at.head / p.heads_per_group;
  const auto count_of = [&](int64_t row) {
    return static_cast<int>(min(at.rows - row, int64_t{kSsdChunk}));
  };
  const T* x = &shared.x[head][0][strip_column];
  copy_chunk<T, N, kWidth, kHeads>(shared, q, at, *chunks, at.begin, count_of(0));
  cp_async_commit();
  for (int64_t row = 0; row < at.rows; row += kSsdChunk) {
    const int count = count_of(row);
    cp_async_wait<0>();
    __syncthreads();
    copy_all<kThreads>(shared.B, chunks->B);
    cp_async_commit();
    make_M<Block::kWarpsPerHead>(shared.M[head], shared.decay[head], in_head, lane);
    __syncthreads();
    {
      float y[kRowTiles][2][4] = {}, sum[kOwnTiles][2][4];
      make_outputs<T, N>(y, S, shared, shared.M[head], shared.decay[head], x, Block::kPitch, share,
                         lane);
      add_outputs(sum, y, shared.partial, warp, share, lane);
      write_outputs(sum, share * kOwnTiles, q, h, column, at.begin + row, count, x, Block::kPitch,
                    lane);
    }
    uint32_t weighed[kRowTiles][Block::kDerived][4];
    weigh_x(weighed, shared.decay[head], x, Block::kPitch, lane);
    const float total = decay_from_start(shared.decay[head][count - 1]);
    cp_async_wait<0>();
    __syncthreads();
    chunks += p.n_groups;
    if (row + kSsdChunk < at.rows) {
      const int64_t next = row + kSsdChunk;
      copy_chunk<T, N, kWidth, kHeads>(shared, q, at, *chunks, at.begin + next, count_of(next));
      cp_async_commit();
    }
    update_states<T, N>(S, weighed, shared, total, share, lane);
  }

  ADDER_UNROLL
  for (int j = 0; j < N / 16; ++j) {
    ADDER_UNROLL
    for (int e = 0; e < 4; ++e) state[e / 2 * 8 * p.state_p + 8 * j + e % 2] = S[j][e];
  }
}

template <typename T, int N, int kWidth, int kHeads>
void launch_strips(CudaContext& context, const FusedParams<T>& q) {
  using Block = FusedBlock<T, N, kWidth, kHeads>;
  const SsdParams<T>& p = q.p;
  launch(context.device, ssd_fused_kernel<T, N, kWidth, kHeads>,
         {blocks(p.n_heads / kHeads * (p.headdim / kWidth), p.batch.n_seqs), dim3(Block::kThreads),
          sizeof(typename Block::Shared)},
         q);
}

}  // namespace

// Strips of 128 columns read B, C and C B^T half as often as strips of 64, which are twice as many
// blocks. A column's bits are the same in either.
template <typename T, int N>
void launch_fused(CudaContext& context, const FusedParams<T>& q) {
  const SsdParams<T>& p = q.p;
  // 512 threads have 128 registers each, which three parts of 128 states do not fit into.
  if constexpr (PartCount<T>::kDerived * N <= 256) {
    const DeviceInfo& device = context.device.info();
    const bool wide = p.n_heads * p.headdim / 128 * p.batch.n_seqs >= device.multiprocessors &&
                      sizeof(typename FusedBlock<T, N, 64, 2>::Shared) <= device.shared_bytes;
    if (wide && p.headdim % 128 == 0) return launch_strips<T, N, 128, 1>(context, q);
    if (wide && p.heads_per_group % 2 == 0) return launch_strips<T, N, 64, 2>(context, q);
  }
  launch_strips<T, N, 64, 1>(context, q);
}
template void launch_fused<float, 64>(CudaContext&, const FusedParams<float>&);
template void launch_fused<float, 128>(CudaContext&, const FusedParams<float>&);
template void launch_fused<Bf16, 64>(CudaContext&, const FusedParams<Bf16>&);
template void launch_fused<Bf16, 128>(CudaContext&, const FusedParams<Bf16>&);

}  // namespace adder::ADDER_CUDA_NS
