// What the rungs have in common that scan along time: a token is the map h -> a h + b, maps compose
// associatively, and so the states of a chunk of tokens follow from a prefix scan of pairs (a, b),
// state by state. A block has one channel, a thread kItems tokens in a row; y gathers in registers.
//
// All of them read B and C anew for every channel, and activations with the distance of a row
// between neighbouring threads: their layout would be [d_inner][n_tokens].
#pragma once

#include "backends/cuda/scan/scan_params.cuh"

namespace adder::ADDER_CUDA_NS {

struct Pair {
  float a, b;
};
inline constexpr Pair kIdentity{1, 0};

// First `first`, then `second`.
__device__ __forceinline__ Pair combine(Pair first, Pair second) {
  return {second.a * first.a, fmaf(second.a, first.b, second.b)};
}

// The maps of all threads before this one, by shuffles within a warp and shared memory between
// them.
template <int kThreads>
struct WarpScan {
  struct Shared {
    Pair warp_total[kThreads / kWarpSize];
  };

  static __device__ __forceinline__ Pair exclusive(Pair mine, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
              warp = static_cast<int>(threadIdx.x) / kWarpSize;
    Pair sum = mine;
    for (int step = 1; step < kWarpSize; step *= 2) {
      const Pair before{__shfl_up_sync(kFullMask, sum.a, unsigned(step)),
                        __shfl_up_sync(kFullMask, sum.b, unsigned(step))};
      if (lane >= step) sum = combine(before, sum);
    }
    __syncthreads();  // the totals of the last call have been read
    if (lane == kWarpSize - 1) shared.warp_total[warp] = sum;
    __syncthreads();
    Pair before{__shfl_up_sync(kFullMask, sum.a, 1u), __shfl_up_sync(kFullMask, sum.b, 1u)};
    if (lane == 0) before = kIdentity;
    Pair warps = kIdentity;
    for (int w = 0; w < warp; ++w) warps = combine(warps, shared.warp_total[w]);
    return combine(warps, before);
  }
};

// A thread's tokens of one channel; beyond the end of the sequence they change nothing.
template <typename T, int kItems>
struct ChunkTokens {
  const ScanParams<T>& p;
  int64_t first, end, d, group;  // rows
  float u[kItems], dt[kItems], y[kItems];

  __device__ __forceinline__ ChunkTokens(const ScanParams<T>& params, int64_t first_row,
                                         int64_t end_row, int64_t channel)
      : p(params),
        first(first_row),
        end(end_row),
        d(channel),
        group(channel / params.channels_per_group) {
    const float bias = channel_or_zero(p.delta_bias, d);
    for (int i = 0; i < kItems; ++i) {
      const int64_t t = first + i;
      y[i] = 0;
      u[i] = t < end ? to_float(p.u[t * p.u_row + d]) : 0.0f;
      dt[i] = t < end ? scan_dt(p, to_float(p.delta[t * p.delta_row + d]), bias) : 0.0f;
    }
  }
  // What each token does to state n; returns what they do together.
  __device__ __forceinline__ Pair pairs(int64_t n, Pair (&items)[kItems]) const {
    const float A = p.A_log2e[n * p.A_row + d];
    Pair all = kIdentity;
    for (int i = 0; i < kItems; ++i) {
      const int64_t t = first + i;
      const float B = t < end ? to_float(p.B[t * p.B_row + group * p.B_group + n]) : 0.0f;
      items[i] = {ex2(dt[i] * A), dt[i] * u[i] * B};
      all = combine(all, items[i]);
    }
    return all;
  }
  // From state n before the first token to after the last one.
  __device__ __forceinline__ float follow(int64_t n, const Pair (&items)[kItems], float h) {
    for (int i = 0; i < kItems; ++i) {
      const int64_t t = first + i;
      h = fmaf(items[i].a, h, items[i].b);
      if (t < end) y[i] = fmaf(to_float(p.C[t * p.C_row + group * p.C_group + n]), h, y[i]);
    }
    return h;
  }
  __device__ __forceinline__ void write() const {
    const float skip = channel_or_zero(p.D, d);
    for (int i = 0; i < kItems; ++i) {
      const int64_t t = first + i;
      if (t >= end) break;
      const float z = p.z == nullptr ? 0.0f : to_float(p.z[t * p.z_row + d]);
      p.out[t * p.out_row + d] = scan_output<T>(y[i], skip, u[i], p.z != nullptr, z);
    }
  }
};

template <typename T>
__device__ __forceinline__ void write_zeros(const ScanParams<T>& p, int64_t begin, int64_t end,
                                            int64_t d) {
  for (int64_t t = begin + threadIdx.x; t < end; t += blockDim.x)
    p.out[t * p.out_row + d] = from_float<T>(0);
}

// A block walks its channel chunk by chunk; between chunks the state lies in the slot.
template <typename T, typename Scan, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) chunk_kernel(ScanParams<T> p) {
  auto& shared = shared_memory<typename Scan::Shared>();
  const int64_t d = blockIdx.x;
  const ScanSequence s = scan_sequence(p, blockIdx.y);
  const int64_t end = s.begin + s.length;
  if (s.slot < 0) return write_zeros(p, s.begin, end, d);
  float* const h = p.ssm_state + s.slot * p.state_slot + d;
  for (int64_t t = s.begin; t < end; t += kThreads * kItems) {
    ChunkTokens<T, kItems> tokens(p, t + int64_t{threadIdx.x} * kItems, end, d);
    __syncthreads();  // the states of the last chunk are there
    for (int64_t n = 0; n < p.d_state; ++n) {
      Pair items[kItems];
      const Pair mine = tokens.pairs(n, items);
      const float carry = h[n * p.state_row];
      const Pair before = Scan::exclusive(mine, shared);  // everybody has read the carry
      const float after = tokens.follow(n, items, fmaf(before.a, carry, before.b));
      if (threadIdx.x == kThreads - 1) h[n * p.state_row] = after;
    }
    tokens.write();
  }
}

template <template <int> typename Scan, int kThreads, int kItems>
void scan_by_chunks(CudaContext& context, const SelectiveScanArgs& a) {
  with_activations(a, [&](auto type) {
    using T = decltype(type);
    const auto params = scan_params<T>(context, a);
    launch(context.device, chunk_kernel<T, Scan<kThreads>, kThreads, kItems>,
           {blocks(params.d_inner, params.batch.n_seqs), dim3(kThreads),
            sizeof(typename Scan<kThreads>::Shared)},
           params);
  });
}

}  // namespace adder::ADDER_CUDA_NS
