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
// Shared memory holds one chunk: B is copied while the outputs are made, and the rest of the next
// chunk while the states are updated. In strips of 64 columns with bfloat16 that is too short a
// time (derived: 35 KB take 550 clocks at 64 bytes per clock and multiprocessor, the update's 64
// products about as long), but there is room for two chunks: one is copied all the time that the
// other is worked on.
//
// Derived, per chunk and warp at N 128: 32 tile products C S^T (4 x 2 x 4), 10 of M x, 32 of the
// update, each 2 mma_16x8x16 for bfloat16 and 6 for float32: 148 and 444, or 18.5 and 55.5 per
// token-head of P 64. Exponentials per token-head: 40 of M, 32 of 2^sum(l), 2 in the first launch,
// and silu.
#include "backends/cuda/ssd/ssd_products.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

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

  static constexpr int kStages = kExact == 1 && kThreads == 256 ? 2 : 1;
  struct Chunk {
    FragmentTile C[kRowTiles][N / 16][kExact];
    FragmentTile B[N / 16][kRowTiles][kExact];
    TileOfM M[kHeads][kCausalTiles];
    SsdDecay decay[kHeads][kSsdChunk];
    alignas(16) T x[kHeads][kSsdChunk][kPitch];
  };
  struct Shared {
    Chunk chunk[kStages];
    float4 partial[kWarps][kOwnTiles][2][kWarpSize];  // of outputs, for the other warp
  };
  // Blocks that a multiprocessor of sm_90 has at once.
  static constexpr int kResident = kThreads == 256 && sizeof(Shared) <= (227 << 10) / 2 ? 2 : 1;
};

template <int kThreads, typename To>
__device__ __forceinline__ void copy_all(To& to, const To& from) {
  static_assert(sizeof(To) % 16 == 0);
  ADDER_ROLLED
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(To) / 16); i += kThreads)
    cp_async<16>(reinterpret_cast<uint4*>(&to) + i, reinterpret_cast<const uint4*>(&from) + i);
}

// The rows of a block's sequence, and its first head and column.
struct FusedPlace {
  int64_t begin;
  int rows, head, column;
};

// Everything of a chunk but B. `count` rows; the rest of x and of the decays becomes 0.
template <typename T, int N, int kWidth, int kHeads>
__device__ __forceinline__ void copy_chunk(typename FusedBlock<T, N, kWidth, kHeads>::Chunk& to,
                                           const FusedParams<T>& q, const FusedPlace& at,
                                           const GroupChunk<T, N>& chunk, int64_t first,
                                           int count) {
  constexpr int kThreads = FusedBlock<T, N, kWidth, kHeads>::kThreads;
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  const SsdParams<T>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x);
  copy_all<kThreads>(to.C, chunk.C);
  ADDER_ROLLED
  for (int head = 0; head < kHeads; ++head) {
    constexpr int kTileVectors = sizeof(AccumulatorTile) / 16;
    ADDER_ROLLED
    for (int e = thread; e < kCausalTiles * kTileVectors; e += kThreads) {
      const int tile = e / kTileVectors, at_vector = e % kTileVectors;
      cp_async<16>(&to.M[head][tile].CB.half[0][0] + at_vector,
                   &chunk.CB[tile].half[0][0] + at_vector);
    }
    const int64_t h = at.head + head;
    const SsdDecay* decay = q.decays + h * p.batch.n_tokens + first;
    ADDER_ROLLED
    for (int r = thread; r < kSsdChunk; r += kThreads)
      cp_async<16>(&to.decay[head][r], decay + (r < count ? r : 0), r < count ? 16 : 0);
    const T* x = p.x + first * p.x_row + h * p.x_head + at.column;
    if (q.x_vectors) {
      ADDER_ROLLED
      for (int e = thread; e < kSsdChunk * kWidth / kVector; e += kThreads) {
        const int r = e / (kWidth / kVector), c = e % (kWidth / kVector) * kVector;
        cp_async<16>(&to.x[head][r][c], x + (r < count ? r * p.x_row + c : 0), r < count ? 16 : 0);
      }
    } else {
      ADDER_ROLLED
      for (int e = thread; e < kSsdChunk * kWidth; e += kThreads) {
        const int r = e / kWidth, c = e % kWidth;
        to.x[head][r][c] = r < count ? x[r * p.x_row + c] : from_float<T>(0);
      }
    }
  }
}

template <typename T, int N, int kWidth, int kHeads>
__global__ void __launch_bounds__(FusedBlock<T, N, kWidth, kHeads>::kThreads,
                                  FusedBlock<T, N, kWidth, kHeads>::kResident)
    ssd_fused_kernel(FusedParams<T> q) {
  using Block = FusedBlock<T, N, kWidth, kHeads>;
  constexpr int kThreads = Block::kThreads;
  auto& shared = shared_memory<typename Block::Shared>();
  const SsdParams<T>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize,
            warp = thread / kWarpSize, g = lane / 4, i = lane % 4;
  const int strips = static_cast<int>(p.headdim) / kWidth, strip = static_cast<int>(blockIdx.x);
  const auto [begin, length, slot] = ssd_sequence(p, blockIdx.y);
  const FusedPlace at{begin, static_cast<int>(ssd_chunked_rows(length)), strip / strips * kHeads,
                      strip % strips * kWidth};
  const int head = warp / Block::kWarpsPerHead, in_head = warp % Block::kWarpsPerHead;
  const int share = in_head % kSharing, strip_column = in_head / kSharing * 16;
  const int h = at.head + head, column = at.column + strip_column;
  if (at.rows == 0) return;
  if (slot < 0) {
    for (int r = 2 * share + lane / 16; r < at.rows; r += 2 * kSharing)
      p.out[(at.begin + r) * p.out_row + h * p.out_head + column + lane % 16] = from_float<T>(0);
    return;
  }

  float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + (column + g) * p.state_p +
                 share * (N / kSharing) + 2 * i;
  float S[N / 16][4];
  ADDER_UNROLL
  for (int j = 0; j < N / 16; ++j) {
    ADDER_UNROLL
    for (int e = 0; e < 4; ++e) S[j][e] = state[e / 2 * 8 * p.state_p + 8 * j + e % 2];
  }

  const auto* chunks = static_cast<const GroupChunk<T, N>*>(q.chunks) +
                       first_chunk_slot(p, blockIdx.y) * p.n_groups + at.head / p.heads_per_group;
  const auto chunk_at = [&](int row) -> const GroupChunk<T, N>& {
    return chunks[row / kSsdChunk * p.n_groups];
  };
  const auto count_of = [&](int row) { return min(at.rows - row, kSsdChunk); };
  const auto copy = [&](typename Block::Chunk& to, int row) {
    if (row < at.rows) {
      copy_chunk<T, N, kWidth, kHeads>(to, q, at, chunk_at(row), at.begin + row, count_of(row));
      if constexpr (Block::kStages == 2) copy_all<kThreads>(to.B, chunk_at(row).B);
    }
    cp_async_commit();
  };
  copy(shared.chunk[0], 0);
  for (int row = 0; row < at.rows; row += kSsdChunk) {
    auto& chunk = shared.chunk[row / kSsdChunk % Block::kStages];
    const auto& decay = chunk.decay[head];
    const T* x = &chunk.x[head][0][strip_column];
    const int count = count_of(row);
    cp_async_wait<0>();
    __syncthreads();
    if constexpr (Block::kStages == 2) {
      copy(shared.chunk[(row / kSsdChunk + 1) % 2], row + kSsdChunk);
    } else {
      copy_all<kThreads>(chunk.B, chunk_at(row).B);
      cp_async_commit();
    }
    make_M<Block::kWarpsPerHead>(chunk.M[head], decay, in_head, lane);
    __syncthreads();
    {
      float y[kRowTiles][2][4] = {}, sum[kOwnTiles][2][4];
      make_outputs<T, N>(y, S, chunk, chunk.M[head], decay, x, Block::kPitch, share, lane);
      add_outputs(sum, y, shared.partial, warp, share, lane);
      write_outputs(sum, share * kOwnTiles, q, h, column, at.begin + row, count, x, Block::kPitch,
                    lane);
    }
    uint32_t weighed[kRowTiles][Block::kDerived][4];
    weigh_x(weighed, decay, x, Block::kPitch, lane);
    const float total = decay_from_start(decay[count - 1]);
    if constexpr (Block::kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();
      copy(chunk, row + kSsdChunk);
    }
    update_states<T, N>(S, weighed, chunk, total, share, lane);
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
  // 512 threads have 128 registers each, which 128 states do not fit into.
  if constexpr (N < 128) {
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
