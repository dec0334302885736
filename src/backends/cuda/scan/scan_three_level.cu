// Rung (d): time is split over blocks too. Within a chunk pairs are scanned by shuffles (a warp)
// and shared memory (the block); between chunks by decoupled look-back (Merrill and Garland,
// NVR-2016-002) in the same launch: a block publishes what its chunk does to each state, then walks
// back over earlier chunks until it meets one whose final state is known, and publishes its own.
//
// Exponentials are computed twice, before and after the look-back. Where a walk ends depends on
// timing, and with it the rounding: for comparison only.
#include "backends/cuda/scan/scan_chunks.cuh"
#include "backends/cuda/scan/scan_kernels.h"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128, kItems = 8, kChunk = kThreads * kItems;
constexpr int kBatch = 16;  // states that look back together, a thread each

enum : uint32_t { kNothing, kMap, kState };  // what a chunk has published

struct Carry {
  uint32_t published;
  Pair map;     // of the chunk
  float state;  // after it
};

template <typename T>
struct ThreeLevelParams {
  ScanParams<T> scan;
  uint32_t* ticket;
  Carry* carries;  // (chunks, n_seqs, d_inner, d_state)
};

struct ThreeLevelShared {
  unsigned ticket;
  WarpScan<kThreads>::Shared scan;
  Pair before[kBatch][kThreads], total[kBatch];
  float incoming[kBatch];
};

// The state before a chunk. `mine` is its entry, those of earlier chunks lie `distance` apart.
__device__ __forceinline__ float look_back(Carry* mine, int64_t distance, Pair map) {
  mine->map = map;
  store_release(&mine->published, kMap);
  Pair between = kIdentity;  // the chunks after the one that is looked at
  for (const Carry* earlier = mine - distance;; earlier -= distance) {
    uint32_t published;
    while ((published = load_acquire(&earlier->published)) == kNothing) nap();
    if (published == kState) return fmaf(between.a, earlier->state, between.b);
    between = combine(earlier->map, between);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 4) three_level_kernel(ThreeLevelParams<T> params) {
  auto& shared = shared_memory<ThreeLevelShared>();
  const ScanParams<T>& p = params.scan;
  const int thread = static_cast<int>(threadIdx.x);
  // Blocks number themselves in the order in which they start, all first chunks before all second
  // ones, so that whatever a block waits for is at work.
  if (thread == 0) shared.ticket = atomicAdd(params.ticket, 1u);
  __syncthreads();
  const int64_t per_chunk = p.batch.n_seqs * p.d_inner;
  const int64_t chunk = shared.ticket / per_chunk, column = shared.ticket % per_chunk;
  const int64_t d = column % p.d_inner;
  const ScanSequence s = scan_sequence(p, column / p.d_inner);
  const int64_t begin = s.begin + chunk * kChunk, end = s.begin + s.length;
  if (begin >= end) return;
  if (s.slot < 0) return write_zeros(p, begin, min(begin + kChunk, end), d);
  float* const h = p.ssm_state + s.slot * p.state_slot + d;

  ChunkTokens<T, kItems> tokens(p, begin + thread * kItems, end, d);
  Pair items[kItems];
  for (int64_t n0 = 0; n0 < p.d_state; n0 += kBatch) {
    const int count = static_cast<int>(min(int64_t{kBatch}, p.d_state - n0));
    for (int k = 0; k < count; ++k) {
      const Pair mine = tokens.pairs(n0 + k, items);
      const Pair before = WarpScan<kThreads>::exclusive(mine, shared.scan);
      shared.before[k][thread] = before;
      if (thread == kThreads - 1) shared.total[k] = combine(before, mine);
    }
    __syncthreads();
    if (thread < count) {
      const int64_t n = n0 + thread;
      Carry* const mine = params.carries + (chunk * per_chunk + column) * p.d_state + n;
      const Pair map = shared.total[thread];
      const float incoming =
          chunk == 0 ? h[n * p.state_row] : look_back(mine, per_chunk * p.d_state, map);
      const float outgoing = fmaf(map.a, incoming, map.b);
      mine->state = outgoing;
      store_release(&mine->published, kState);
      shared.incoming[thread] = incoming;
      if (begin + kChunk >= end) h[n * p.state_row] = outgoing;
    }
    __syncthreads();
    for (int k = 0; k < count; ++k) {
      tokens.pairs(n0 + k, items);
      const Pair before = shared.before[k][thread];
      tokens.follow(n0 + k, items, fmaf(before.a, shared.incoming[k], before.b));
    }
  }
  tokens.write();
}

template <typename T>
void run(CudaContext& context, const SelectiveScanArgs& a) {
  const auto scan = scan_params<T>(context, a);
  const int64_t n_blocks = ceil_div(scan.batch.longest, kChunk) * scan.batch.n_seqs * scan.d_inner;
  constexpr size_t kTicketBytes = 16;
  const size_t bytes = kTicketBytes + static_cast<size_t>(n_blocks * scan.d_state) * sizeof(Carry);
  auto* const memory = static_cast<std::byte*>(context.scratch(bytes));
  context.device.zero(memory, bytes);
  launch(context.device, three_level_kernel<T>,
         {blocks(n_blocks), dim3(kThreads), sizeof(ThreeLevelShared)},
         ThreeLevelParams<T>{scan, reinterpret_cast<uint32_t*>(memory),
                             reinterpret_cast<Carry*>(memory + kTicketBytes)});
}

}  // namespace

void scan_three_level(CudaContext& context, const SelectiveScanArgs& a) {
  with_activations(a, [&](auto type) { run<decltype(type)>(context, a); });
}

}  // namespace adder::ADDER_CUDA_NS
