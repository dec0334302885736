// The chunked form as the papers and mamba_ssm have it: kernels that hand whole arrays on through
// memory. With rows l, s of a chunk (arXiv 2405.21060, section 6):
//
//   1 decays    sum(l) per head
//   2 products  C B^T per group
//   3 states    what a chunk adds: (dt 2^(sum(last) - sum) x)^T B
//   4 passing   the state before each chunk, one chunk after the other
//   5 outputs   2^sum(l) C S^T + (C B^T * 2^(sum(l) - sum(s)) dt(s), s <= l) x
//
// States cross memory four times: at P 64, N 128 that is 2048 bytes per token-head, against 512 of
// x and y in float32 (derived). ssd_fused keeps them in registers.
#include "backends/cuda/ssd/ssd_chunk.cuh"
#include "backends/cuda/ssd/ssd_kernels.h"
#include "backends/cuda/ssd/tile_product.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kDecayWarps = 4, kPassThreads = 256;

template <typename T>
struct ChunkedParams {
  SsdParams<T> p;
  SsdDecay* decays;  // (n_heads, n_tokens)
  float* CB;         // (chunk slots, n_groups, 64, 64)
  float* states;     // (chunk slots, n_heads, headdim, d_state): added by a chunk, then before it

  __device__ __forceinline__ SsdDecay* decay(int64_t h, int64_t t) const {
    return decays + h * p.batch.n_tokens + t;
  }
  __device__ __forceinline__ float* state(int64_t slot, int64_t h) const {
    return states + (slot * p.n_heads + h) * p.headdim * p.d_state;
  }
  __device__ __forceinline__ float* products(int64_t slot, int64_t group) const {
    return CB + (slot * p.n_groups + group) * kSsdChunk * kSsdChunk;
  }
};

// The chunk of a block, if its sequence has one there.
struct ChunkPlace {
  int64_t first, slot;
  int count;  // of rows; 0: there is none
};
template <typename T>
__device__ __forceinline__ ChunkPlace chunk_place(const SsdParams<T>& p, int64_t chunk,
                                                  int64_t sequence) {
  const auto [begin, length, slot] = ssd_sequence(p, sequence);
  const int64_t left = slot < 0 ? 0 : length - chunk * kSsdChunk;
  return {begin + chunk * kSsdChunk, first_chunk_slot(p, sequence) + chunk,
          static_cast<int>(max(int64_t{0}, min(left, int64_t{kSsdChunk})))};
}

template <typename T>
__global__ void __launch_bounds__(kDecayWarps* kWarpSize) chunked_decay_kernel(ChunkedParams<T> q) {
  const int64_t h = int64_t{blockIdx.y} * kDecayWarps + threadIdx.y;
  const ChunkPlace at = chunk_place(q.p, blockIdx.x, blockIdx.z);
  if (at.count == 0 || h >= q.p.n_heads) return;
  chunk_decays(q.p, h, at.first, at.count, q.decay(h, at.first));
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) chunked_product_kernel(ChunkedParams<T> q) {
  const SsdParams<T>& p = q.p;
  const int64_t group = blockIdx.y;
  const ChunkPlace at = chunk_place(p, blockIdx.x, blockIdx.z);
  if (at.count == 0) return;
  const T* C = p.C + at.first * p.C_row + group * p.C_group;
  const T* B = p.B + at.first * p.B_row + group * p.B_group;
  float sum[4][4] = {};
  multiply_tile(
      sum, static_cast<int>(p.d_state),
      [&](int l, int n) { return l < at.count ? to_float(C[l * p.C_row + n]) : 0.0f; },
      [&](int n, int s) { return s < at.count ? to_float(B[s * p.B_row + n]) : 0.0f; },
      shared_memory<TileProductShared>());
  const int thread = static_cast<int>(threadIdx.x), x = thread % 16, y = thread / 16;
  float* CB = q.products(at.slot, group);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) CB[(4 * y + i) * kSsdChunk + 4 * x + j] = sum[i][j];
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) chunked_state_kernel(ChunkedParams<T> q) {
  const SsdParams<T>& p = q.p;
  const int64_t h = blockIdx.y, group = h / p.heads_per_group;
  const int64_t tiles_n = ceil_div(p.d_state, kTile), tiles = ceil_div(p.headdim, kTile) * tiles_n;
  const ChunkPlace at = chunk_place(p, blockIdx.x / tiles, blockIdx.z);
  if (at.count == 0) return;
  const int64_t tile = blockIdx.x % tiles, first_p = tile / tiles_n * kTile,
                first_n = tile % tiles_n * kTile;
  const T* x = p.x + at.first * p.x_row + h * p.x_head + first_p;
  const T* B = p.B + at.first * p.B_row + group * p.B_group + first_n;
  const SsdDecay* decay = q.decay(h, at.first);
  float sum[4][4] = {};
  multiply_tile(
      sum, at.count,
      [&](int column, int s) {
        return first_p + column < p.headdim ? to_float(x[s * p.x_row + column]) * decay[s].to_end
                                            : 0.0f;
      },
      [&](int s, int n) { return first_n + n < p.d_state ? to_float(B[s * p.B_row + n]) : 0.0f; },
      shared_memory<TileProductShared>());
  const int thread = static_cast<int>(threadIdx.x);
  float* state = q.state(at.slot, h);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int64_t element = first_p + thread / 16 * 4 + i, n = first_n + thread % 16 * 4 + j;
      if (element < p.headdim && n < p.d_state) state[element * p.d_state + n] = sum[i][j];
    }
}

template <typename T>
__global__ void __launch_bounds__(kPassThreads) chunked_passing_kernel(ChunkedParams<T> q) {
  const SsdParams<T>& p = q.p;
  const int64_t h = blockIdx.y;
  const int64_t e = int64_t{blockIdx.x} * kPassThreads + threadIdx.x;
  const auto [begin, length, slot] = ssd_sequence(p, blockIdx.z);
  if (slot < 0 || length == 0 || e >= p.headdim * p.d_state) return;
  float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + e / p.d_state * p.state_p +
                 e % p.d_state;
  float now = *state;
  for (int64_t row = 0; row < length; row += kSsdChunk) {
    float* of_chunk = q.state(first_chunk_slot(p, blockIdx.z) + row / kSsdChunk, h) + e;
    const int64_t last = min(row + kSsdChunk, length) - 1;
    const float added = *of_chunk;
    *of_chunk = now;
    now = fmaf(decay_from_start(*q.decay(h, begin + last)), now, added);
  }
  *state = now;
}

// What is not finite in x must not reach rows before its own, from which 0 as a factor does not
// keep it: it is left out of the product and added from its row on.
struct OutputShared {
  TileProductShared product;
  bool spoiled;
};

template <typename T>
__global__ void __launch_bounds__(kTileThreads) chunked_output_kernel(ChunkedParams<T> q) {
  const SsdParams<T>& p = q.p;
  const int64_t h = blockIdx.y, group = h / p.heads_per_group;
  const int64_t tiles = ceil_div(p.headdim, kTile), first_p = blockIdx.x % tiles * kTile;
  const SsdSequence sequence = ssd_sequence(p, blockIdx.z);
  const int thread = static_cast<int>(threadIdx.x), x = thread % 16, y = thread / 16;
  const int64_t row = blockIdx.x / tiles * kSsdChunk;
  const auto outside = [&](int64_t l, int64_t element) {
    return row + l >= sequence.length || element >= p.headdim;
  };
  if (sequence.slot < 0) {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const int64_t l = 4 * y + i, element = first_p + 4 * x + j;
        if (!outside(l, element))
          p.out[(sequence.begin + row + l) * p.out_row + h * p.out_head + element] =
              from_float<T>(0);
      }
    return;
  }
  const ChunkPlace at = chunk_place(p, blockIdx.x / tiles, blockIdx.z);
  if (at.count == 0) return;
  auto& shared = shared_memory<OutputShared>();
  if (thread == 0) shared.spoiled = false;
  const T* C = p.C + at.first * p.C_row + group * p.C_group;
  const T* in = p.x + at.first * p.x_row + h * p.x_head + first_p;
  const float* state = q.state(at.slot, h) + first_p * p.d_state;
  const float* CB = q.products(at.slot, group);
  const SsdDecay* decay = q.decay(h, at.first);
  float sum[4][4] = {};
  multiply_tile(
      sum, static_cast<int>(p.d_state),
      [&](int l, int n) { return l < at.count ? to_float(C[l * p.C_row + n]) : 0.0f; },
      [&](int n, int column) {
        return first_p + column < p.headdim ? state[column * p.d_state + n] : 0.0f;
      },
      shared.product);
  for (int i = 0; i < 4; ++i) {
    const int l = 4 * y + i;
    const float weight = l < at.count ? decay_from_start(decay[l]) : 0.0f;
    for (int j = 0; j < 4; ++j) sum[i][j] *= weight;
  }
  multiply_tile(
      sum, at.count,
      [&](int l, int s) {
        if (s > l || l >= at.count) return 0.0f;
        return CB[l * kSsdChunk + s] * decay_between(decay[l], decay[s]) * decay[s].dt;
      },
      [&](int s, int column) {
        if (first_p + column >= p.headdim) return 0.0f;
        const float v = to_float(in[s * p.x_row + column]);
        if (0 * v == 0) return v;
        shared.spoiled = true;
        return 0.0f;
      },
      shared.product);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int64_t l = 4 * y + i, element = first_p + 4 * x + j;
      if (outside(l, element)) continue;
      const T* column = in + element - first_p;
      if (shared.spoiled)
        for (int64_t s = 0; s < l; ++s)
          sum[i][j] = fmaf(0, to_float(column[s * p.x_row]), sum[i][j]);
      const float input = to_float(column[l * p.x_row]);
      const float v = fmaf(ssd_skip(p, h, element), input, sum[i][j]);
      p.out[(at.first + l) * p.out_row + h * p.out_head + element] =
          from_float<T>(ssd_gated(p, at.first + l, h, element, v));
    }
}

template <typename T>
void run(CudaContext& context, const SsdScanArgs& a) {
  const SsdParams<T> p = ssd_params<T>(context, a);
  const int64_t slots = chunk_slots(p.batch);
  const auto decays = static_cast<size_t>(p.n_heads * p.batch.n_tokens) * sizeof(SsdDecay);
  const auto products =
      static_cast<size_t>(slots * p.n_groups * kSsdChunk * kSsdChunk) * sizeof(float);
  const auto states = static_cast<size_t>(slots * p.n_heads * p.headdim * p.d_state);
  auto* scratch =
      static_cast<std::byte*>(context.scratch(decays + products + states * sizeof(float)));
  const ChunkedParams<T> q{p, reinterpret_cast<SsdDecay*>(scratch),
                           reinterpret_cast<float*>(scratch + decays),
                           reinterpret_cast<float*>(scratch + decays + products)};
  Device& device = context.device;
  const int64_t chunks = ceil_div(p.batch.longest, kSsdChunk), n_seqs = p.batch.n_seqs;
  const int64_t tiles_p = ceil_div(p.headdim, kTile), tiles_n = ceil_div(p.d_state, kTile);
  const auto shared = sizeof(TileProductShared);
  launch(device, chunked_decay_kernel<T>,
         {blocks(chunks, ceil_div(p.n_heads, kDecayWarps), n_seqs), dim3(kWarpSize, kDecayWarps)},
         q);
  launch(device, chunked_product_kernel<T>,
         {blocks(chunks, p.n_groups, n_seqs), dim3(kTileThreads), shared}, q);
  launch(device, chunked_state_kernel<T>,
         {blocks(chunks * tiles_p * tiles_n, p.n_heads, n_seqs), dim3(kTileThreads), shared}, q);
  if (chunks > 0)
    launch(device, chunked_passing_kernel<T>,
           {blocks(ceil_div(p.headdim * p.d_state, kPassThreads), p.n_heads, n_seqs),
            dim3(kPassThreads)},
           q);
  launch(device, chunked_output_kernel<T>,
         {blocks(chunks * tiles_p, p.n_heads, n_seqs), dim3(kTileThreads), sizeof(OutputShared)},
         q);
}

}  // namespace

void ssd_chunked(CudaContext& context, const SsdScanArgs& a) {
  a.x.dtype == DType::kBF16 ? run<Bf16>(context, a) : run<float>(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
