// A step of Mamba-2 between its projections in one launch: convolution, recurrence, gate and norm
// of one row per sequence.
//
// Blocks have the shape of ssd_step: enough of them to read the state at full speed, each with a
// few elements of one head. Two things belong to all blocks of a group: the norm over it, and the
// convolution of B and C, which every block makes for itself (1 KB of results at N 128, from 9 KB
// that the group's blocks share in L2), so that its state may change only when all have read it.
// The last of them to come to its end does both. The order of every sum is fixed whichever
// block that is. A cluster would hold the group's blocks together without a counter, but has at
// most 16 of the 320 that mamba2-2.7b has at batch 1.
#include "backends/cuda/causal_conv1d.cuh"
#include "backends/cuda/ops.h"
#include "backends/cuda/rms_norm.cuh"
#include "backends/cuda/ssd/ssd_kernels.h"
#include "backends/cuda/ssd/ssd_params.cuh"
#include "backends/cuda/ssd/ssd_step.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = kNormThreads, kRowsPerThread = 2;

struct FusedStepParams {
  SsdParams<float> p;
  ConvParams conv;
  GatedRmsNormParams norm;  // x null: none
  uint32_t* arrived;        // (n_seqs, n_groups), 0
  bool state_vectors;
};

template <int N>
struct FusedStepShared {
  static constexpr int kElements = kRowsPerThread * kThreads / (N / 4);  // of a block
  // The convolution's outputs that a block needs.
  float x[kElements];
  alignas(16) float B[N], C[N];
  NormShared norm;
  bool last;
};

// Whether this block is the last of `count` that come here. What the others have read and written
// before is done then.
__device__ __forceinline__ bool arrives_last(uint32_t* arrived, uint32_t count, bool& last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(arrived, 1u) + 1 == count;
    if (last) *arrived = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Two blocks an SM are asked for and, with 72 registers on sm_90a, three fit; asked for nothing,
// the compiler spills.
template <int N>
__global__ void __launch_bounds__(kThreads, 2) fused_step_kernel(FusedStepParams q) {
  using Shared = FusedStepShared<N>;
  constexpr int kLanes = N / 4, kPass = kThreads / kLanes;
  auto& shared = shared_memory<Shared>();
  const SsdParams<float>& p = q.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const int64_t h = blockIdx.y, sequence = blockIdx.z, group = h / p.heads_per_group;
  const auto [t, length, slot] = ssd_sequence(p, sequence);
  if (length == 0) return;
  const int64_t first = int64_t{blockIdx.x} * Shared::kElements;
  float* out = p.out + t * p.out_row + h * p.out_head + first;
  // Channels of the convolution: x of all heads, B of all groups, C of all groups.
  const int64_t x_channel = h * p.headdim + first;
  const int64_t B_channel = p.n_heads * p.headdim + group * N;
  const int64_t C_channel = B_channel + p.n_groups * N;

  if (slot >= 0) {
    float* state = p.ssm_state + slot * p.state_slot + h * p.state_head + first * p.state_p +
                   thread / kLanes * p.state_p + 4 * lane;
    float4 S[kRowsPerThread];
    for (int r = 0; r < kRowsPerThread; ++r)
      S[r] = load4(state + r * kPass * p.state_p, q.state_vectors);
    for (int i = thread; i < Shared::kElements; i += kThreads) {
      shared.x[i] = conv_row(q.conv, slot, t, 0, x_channel + i);
      conv_advance(q.conv, slot, t, 1, x_channel + i);
    }
    for (int i = thread; i < 2 * N; i += kThreads) {
      if (i < N)
        shared.B[i] = conv_row(q.conv, slot, t, 0, B_channel + i);
      else
        shared.C[i - N] = conv_row(q.conv, slot, t, 0, C_channel + i - N);
    }
    const float dt = ssd_dt(p, t, h), decay = ex2(dt * p.A_log2e[h]);
    __syncthreads();
    const float4 B = load4(shared.B + 4 * lane, true), C = load4(shared.C + 4 * lane, true);
    for (int r = 0; r < kRowsPerThread; ++r) {
      const int element = r * kPass + thread / kLanes;
      const float x = shared.x[element];
      const float y = ssd_advance<kLanes>(S[r], decay, dt * x, B, C);
      if (lane == 0)
        out[element] =
            ssd_gated(p, t, h, first + element, fmaf(ssd_skip(p, h, first + element), x, y));
      store4(state + r * kPass * p.state_p, S[r], q.state_vectors);
    }
  } else {
    for (int i = thread; i < Shared::kElements; i += kThreads) out[i] = 0;
  }

  const auto blocks_of_group = static_cast<uint32_t>(gridDim.x * p.heads_per_group);
  if (!arrives_last(q.arrived + sequence * p.n_groups + group, blocks_of_group, shared.last))
    return;
  if (slot >= 0)
    for (int i = thread; i < 2 * N; i += kThreads)
      conv_advance(q.conv, slot, t, 1, i < N ? B_channel + i : C_channel + i - N);
  if (q.norm.x != nullptr) gated_rms_norm_group(q.norm, t, group, shared.norm);
}

template <int N>
void launch_step(CudaContext& context, const FusedStepParams& q) {
  using Shared = FusedStepShared<N>;
  launch(context.device, fused_step_kernel<N>,
         {blocks(q.p.headdim / Shared::kElements, q.p.n_heads, q.p.batch.n_seqs), dim3(kThreads),
          sizeof(Shared)},
         q);
}

bool same_rows(std::span<const int32_t> a, std::span<const int32_t> b) {
  return a.data() == b.data() && a.size() == b.size();
}

// `part` is (n_tokens, heads, width), all columns of `whole` from `column` on.
bool is_columns(const Tensor& part, const Tensor& whole, int64_t column) {
  return part.rank == 3 && part.dtype == DType::kF32 && whole.dtype == DType::kF32 &&
         part.bytes() == whole.bytes() + column * int64_t{sizeof(float)} &&
         part.dim(0) == whole.dim(0) && part.stride[0] == whole.stride[0] &&
         part.stride[1] == part.dim(2) && part.stride[2] == 1;
}

}  // namespace

bool conv_ssd_norm_takes(const ConvSsdNormArgs& a) {
  const SsdScanArgs& s = a.scan;
  if (s.x.rank != 3 || s.B.rank != 3 || s.C.rank != 3 || a.conv.out.rank != 2) return false;
  const auto& starts = s.batch.seq_start;
  for (size_t i = 1; i < starts.size(); ++i)
    if (starts[i] - starts[i - 1] > 1) return false;
  const int64_t width = s.x.dim(1) * s.x.dim(2), B_width = s.B.dim(1) * s.B.dim(2);
  // Other shapes of the scan take other kernels, with other bits.
  return ssd_fused_takes(s) && same_rows(starts, a.conv.batch.seq_start) &&
         same_rows(s.batch.state_slot, a.conv.batch.state_slot) && is_columns(s.x, a.conv.out, 0) &&
         is_columns(s.B, a.conv.out, width) && is_columns(s.C, a.conv.out, width + B_width) &&
         a.conv.out.dim(1) == width + 2 * B_width &&
         (!a.norm || (a.norm->x.rank == 2 && is_columns(s.out, a.norm->x, 0) &&
                      a.norm->x.dim(1) == width && a.norm->groups == s.B.dim(1)));
}

void conv_ssd_norm(CudaContext& context, const ConvSsdNormArgs& a) {
  const SsdParams<float> p = ssd_params<float>(context, a.scan);
  const FusedStepParams q{p, conv_params(context, a.conv),
                          a.norm ? gated_rms_norm_params(*a.norm) : GatedRmsNormParams{},
                          context.counters(p.batch.n_seqs * p.n_groups),
                          aligned16(p.ssm_state, {p.state_slot, p.state_head, p.state_p})};
  p.d_state == 64 ? launch_step<64>(context, q) : launch_step<128>(context, q);
}

}  // namespace adder::ADDER_CUDA_NS
