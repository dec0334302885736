// Mamba-2 scan. A task owns one sequence and some heads of one group and walks the sequence in
// chunks: longer ones as matrix products (ssd_chunk-inl.h), short ones token by token
// (ssd_recurrent-inl.h). The choice depends on the length of the chunk alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/ssd_scan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include <algorithm>

#include "backends/cpu/ops.h"
#include "backends/cpu/ssd_chunk-inl.h"
#include "backends/cpu/ssd_recurrent-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

static_assert(kSsdChunkAlign % kSsdChunk == 0);

// Up to this many tokens the recurrent form is faster.
constexpr int64_t kRecurrentTokens = 8;
// Heads that share the products C[t] . B[s] of a chunk; their states (32 KB each at headdim 64,
// d_state 128) stay in the L2 cache from chunk to chunk.
constexpr int64_t kMaxHeads = 12;

SsdGroup GroupView(const SsdScanArgs& a, int64_t group, int64_t t0) {
  SsdGroup g;
  g.d_state = a.B.dim(2);
  g.B_row = a.B.stride[0];
  g.B = a.B.ptr<const float>() + t0 * g.B_row + group * a.B.stride[1];
  g.C_row = a.C.stride[0];
  g.C = a.C.ptr<const float>() + t0 * g.C_row + group * a.C.stride[1];
  return g;
}

SsdHead HeadView(const SsdScanArgs& a, int64_t head, int64_t t0, int64_t slot) {
  SsdHead s;
  s.headdim = a.x.dim(2);
  s.x_row = a.x.stride[0];
  s.x = a.x.ptr<const float>() + t0 * s.x_row + head * a.x.stride[1];
  s.dt_row = a.dt.stride[0];
  s.dt = a.dt.ptr<const float>() + t0 * s.dt_row + head;
  s.z_row = a.z.stride[0];
  s.z = a.z ? a.z.ptr<const float>() + t0 * s.z_row + head * a.z.stride[1] : nullptr;
  s.D_step = a.D.rank == 2 ? 1 : 0;
  s.D = a.D ? a.D.ptr<const float>() + head * (a.D.rank == 2 ? a.D.stride[0] : 1) : nullptr;
  s.A_log2e = a.A_log2e.ptr<const float>()[head];
  s.dt_bias = a.dt_bias ? a.dt_bias.ptr<const float>()[head] : 0.0f;
  s.dt_min = a.dt_min;
  s.dt_max = a.dt_max;
  s.dt_softplus = a.dt_softplus;
  s.S_row = a.ssm_state.stride[2];
  s.S = a.ssm_state.ptr<float>() + slot * a.ssm_state.stride[0] + head * a.ssm_state.stride[1];
  s.out_row = a.out.stride[0];
  s.out = a.out.ptr<float>() + t0 * s.out_row + head * a.out.stride[1];
  return s;
}

// Heads [head0, head1) of one group in one sequence of rows [begin, end).
void ScanHeads(const SsdScanArgs& a, int64_t group, int64_t head0, int64_t head1, int64_t begin,
               int64_t end, int64_t slot, float* scratch) {
  const SsdGroup g = GroupView(a, group, begin);
  const SsdScratch w(scratch, a.x.dim(2), g.d_state);
  const int64_t length = end - begin;
  SsdHead s = HeadView(a, head0, begin, slot);
  for (int64_t t0 = 0; t0 < length; t0 += kSsdChunk) {
    const int64_t tokens = std::min(kSsdChunk, length - t0);
    const bool chunked = tokens > kRecurrentTokens && SsdPrepareGroup(g, t0, tokens, w);
    for (int64_t head = head0; head < head1; ++head) {
      // The next head of this chunk, or the first of the next.
      const bool last = head + 1 == head1;
      const SsdHead following = HeadView(a, last ? head0 : head + 1, begin, slot);
      if (chunked) {
        const int64_t next = last ? t0 + kSsdChunk : t0;
        SsdChunk(g, s, t0, tokens,
                 {&following, next, std::clamp<int64_t>(length - next, 0, kSsdChunk)}, w);
      } else {
        SsdRecurrent(g, s, t0, tokens);
      }
      s = following;
    }
  }
}

void ZeroRows(const SsdScanArgs& a, int64_t head0, int64_t head1, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t head = head0; head < head1; ++head) {
      float* row = a.out.ptr<float>() + t * a.out.stride[0] + head * a.out.stride[1];
      std::fill_n(row, a.out.dim(2), 0.0f);
    }
  }
}

}  // namespace

void SsdScan(const SsdScanArgs& a, CpuContext& context) {
  const int64_t heads = a.x.dim(1) / a.B.dim(1);  // of a group
  context.reserve_scratch(SsdScratch::floats(a.x.dim(2), a.B.dim(2)));
  // Two tasks for each thread, so that an uneven pair of cores finds something to balance.
  const int64_t work = a.batch.n_seqs() * a.x.dim(1);
  const int64_t width =
      std::clamp<int64_t>(work / (2 * context.pool.size()), 1, std::min(kMaxHeads, heads));
  const int64_t blocks = (heads + width - 1) / width;
  const int64_t tasks_per_seq = a.B.dim(1) * blocks;

  const auto run = [&](int64_t first, int64_t last, int thread) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t seq = task / tasks_per_seq, group = task % tasks_per_seq / blocks;
      const int64_t head0 = group * heads + task % blocks * width;
      const int64_t head1 = std::min(head0 + width, (group + 1) * heads);
      const int64_t begin = a.batch.seq_start[static_cast<size_t>(seq)];
      const int64_t end = a.batch.seq_start[static_cast<size_t>(seq + 1)];
      const int64_t slot = a.batch.state_slot[static_cast<size_t>(seq)];
      if (slot < 0) {
        ZeroRows(a, head0, head1, begin, end);
      } else {
        ScanHeads(a, group, head0, head1, begin, end, slot, context.scratch(thread));
      }
    }
  };
  context.pool.parallel_for(a.batch.n_seqs() * tasks_per_seq, 1, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(SsdScan);

void cpu_ssd_scan(const SsdScanArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, SsdScan)(args, context);
}

}  // namespace adder
#endif
