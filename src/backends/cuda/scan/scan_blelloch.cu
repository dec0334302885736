// Rung (c): a chunk is one token per thread, scanned in shared memory by an up-sweep and a
// down-sweep (Blelloch, CMU-CS-90-190): 2 (n - 1) combinations of n pairs in 2 log2(n) steps, each
// with a barrier and at most half of the threads at work.
#include "backends/cuda/scan/scan_chunks.cuh"
#include "backends/cuda/scan/scan_kernels.h"

namespace adder::ADDER_CUDA_NS {
namespace {

template <int kThreads>
struct BlellochScan {
  struct Shared {
    Pair tree[kThreads];
  };

  static __device__ __forceinline__ Pair exclusive(Pair mine, Shared& shared) {
    const int thread = static_cast<int>(threadIdx.x);
    Pair* const tree = shared.tree;
    tree[thread] = mine;
    // Node (thread, span) is the last of `span` elements and gathers them.
    for (int span = 2; span <= kThreads; span *= 2) {
      __syncthreads();
      const int right = (thread + 1) * span - 1;
      if (right < kThreads) tree[right] = combine(tree[right - span / 2], tree[right]);
    }
    __syncthreads();
    if (thread == 0) tree[kThreads - 1] = kIdentity;
    // Now a node has what comes before its elements, and hands it down.
    for (int span = kThreads; span >= 2; span /= 2) {
      __syncthreads();
      const int right = (thread + 1) * span - 1;
      if (right < kThreads) {
        const Pair left = tree[right - span / 2], before = tree[right];
        tree[right - span / 2] = before;
        tree[right] = combine(before, left);
      }
    }
    __syncthreads();
    return tree[thread];
  }
};

}  // namespace

void scan_blelloch(CudaContext& context, const SelectiveScanArgs& a) {
  scan_by_chunks<BlellochScan, 128, 1>(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
