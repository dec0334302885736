// First launch of ssd_fused: per chunk and group the parts of B and C in fragment order and C B^T,
// per chunk and head the decays. All heads of a group read them from L2: at L 4096, N 128, one
// group, bfloat16, 2.1 MB of fragments and 0.65 MB of C B^T (derived).
#include "backends/cuda/ssd/ssd_fused.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kWarps = kRowTiles;

// Rows l of `rows`, which are `row` elements apart; 0 from `count` on.
template <typename T>
struct ChunkRows {
  const T* rows;
  int64_t row;
  int count;
  __device__ __forceinline__ float operator()(int l, int n) const {
    return l < count ? to_float(rows[l * row + n]) : 0.0f;
  }
};

template <typename T, int N>
__device__ __forceinline__ void prepare_group(const FusedParams<T>& q, int64_t group, int64_t first,
                                              int count, int64_t slot) {
  constexpr int kParts = PartCount<T>::kExact;
  const SsdParams<T>& p = q.p;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.y), g = lane / 4, i = lane % 4;
  auto& chunk = static_cast<GroupChunk<T, N>*>(q.chunks)[slot * p.n_groups + group];
  const ChunkRows<T> C{p.C + first * p.C_row + group * p.C_group, p.C_row, count};
  const ChunkRows<T> B{p.B + first * p.B_row + group * p.B_group, p.B_row, count};

  // Row tile `warp` of C, and of C B^T.
  float CB[kRowTiles][2][4] = {};
  for (int k = 0; k < N / 16; ++k) {
    uint32_t a[kParts][4];
    ADDER_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int l = 16 * warp + g + r % 2 * 8, n = 16 * k + 2 * i + r / 2 * 8;
      uint32_t pair[kParts];
      split_pair(C(l, n), C(l, n + 1), pair);
      ADDER_UNROLL
      for (int part = 0; part < kParts; ++part) a[part][r] = pair[part];
    }
    for (int part = 0; part < kParts; ++part)
      chunk.C[warp][k][part].lane[lane] =
          make_uint4(a[part][0], a[part][1], a[part][2], a[part][3]);
    ADDER_UNROLL
    for (int tile = 0; tile < kRowTiles; ++tile) {
      if (tile > warp) continue;
      ADDER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int s = 16 * tile + 8 * half + g;
        uint32_t b[kParts][2];
        ADDER_UNROLL
        for (int r = 0; r < 2; ++r) {
          const int n = 16 * k + 2 * i + 8 * r;
          uint32_t pair[kParts];
          split_pair(B(s, n), B(s, n + 1), pair);
          ADDER_UNROLL
          for (int part = 0; part < kParts; ++part) b[part][r] = pair[part];
        }
        multiply_parts(CB[tile][half], a, b);
      }
    }
  }
  ADDER_UNROLL
  for (int tile = 0; tile < kRowTiles; ++tile) {
    if (tile > warp) continue;
    ADDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto& v = CB[tile][half];
      chunk.CB[causal_tile(warp, tile)].half[half][lane] = make_float4(v[0], v[1], v[2], v[3]);
    }
  }

  // Row tile `warp` of B, as the right operand of the products that sum over rows.
  for (int n16 = 0; n16 < N / 16; ++n16) {
    uint32_t b[kParts][4];
    ADDER_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int s = 16 * warp + 2 * i + r % 2 * 8, n = 16 * n16 + g + r / 2 * 8;
      uint32_t pair[kParts];
      split_pair(B(s, n), B(s + 1, n), pair);
      ADDER_UNROLL
      for (int part = 0; part < kParts; ++part) b[part][r] = pair[part];
    }
    for (int part = 0; part < kParts; ++part)
      chunk.B[n16][warp][part].lane[lane] =
          make_uint4(b[part][0], b[part][1], b[part][2], b[part][3]);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kWarps* kWarpSize) ssd_prepare_kernel(FusedParams<T> q) {
  const SsdParams<T>& p = q.p;
  const auto [begin, length, state_slot] = ssd_sequence(p, blockIdx.z);
  const int64_t row = int64_t{blockIdx.x} * kSsdChunk, rows = ssd_chunked_rows(length);
  if (row >= rows || state_slot < 0) return;
  const int count = static_cast<int>(min(rows - row, int64_t{kSsdChunk}));
  const int64_t part = blockIdx.y;
  if (part < p.n_groups) {
    prepare_group<T, N>(q, part, begin + row, count, first_chunk_slot(p, blockIdx.z) + blockIdx.x);
    return;
  }
  const int64_t h = (part - p.n_groups) * kWarps + threadIdx.y;
  if (h < p.n_heads)
    chunk_decays(p, h, begin + row, count, q.decays + h * p.batch.n_tokens + begin + row);
}

}  // namespace

template <typename T, int N>
void launch_prepare(CudaContext& context, const FusedParams<T>& q) {
  const SsdParams<T>& p = q.p;
  launch(context.device, ssd_prepare_kernel<T, N>,
         {blocks(ceil_div(ssd_chunked_rows(p.batch.longest), kSsdChunk),
                 p.n_groups + ceil_div(p.n_heads, kWarps), p.batch.n_seqs),
          dim3(kWarpSize, kWarps)},
         q);
}
template void launch_prepare<float, 64>(CudaContext&, const FusedParams<float>&);
template void launch_prepare<float, 128>(CudaContext&, const FusedParams<float>&);
template void launch_prepare<Bf16, 64>(CudaContext&, const FusedParams<Bf16>&);
template void launch_prepare<Bf16, 128>(CudaContext&, const FusedParams<Bf16>&);

}  // namespace adder::ADDER_CUDA_NS
