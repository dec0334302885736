// Mamba-1 scan. Neighbouring channels lie in the lanes of a vector, so that no sum crosses lanes.
//
// A task owns one sequence and up to 64 channels, and walks the tokens in blocks of 16: first dt
// and dt * u of the block, then groups of 4 states whose vectors stay in registers over the block
// while y accumulates in the L1 cache, last the gate. Every number is computed in the same order
// for any cut of a sequence into calls: prefill and decode agree to the bit. Cost: one exp2 per
// token, channel and state: 9 operations for the two FMA units of AVX2.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/selective_scan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include <algorithm>

#include "backends/cpu/ops.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 16;  // tokens
constexpr int64_t kWidth = 64;  // channels of a task: 4 cache lines of each row

// Where dt * u and y begin in the scratch.
constexpr int64_t kDu = kBlock * kWidth, kY = 2 * kDu;

// A task's view: pointers to its first token and channel, row strides in floats.
struct ScanTask {
  int64_t tokens, width, d_state;
  const float *u, *delta, *z, *B, *C;  // z may be null
  int64_t u_row, delta_row, z_row, B_row, C_row;
  const float *A, *D, *delta_bias;  // D and delta_bias may be null
  int64_t A_row;
  float* h;
  int64_t h_row;
  float* out;
  int64_t out_row;
  bool softplus;
  float* scratch;  // dt, dt * u and y: 3 * (kBlock, kWidth)
};

// dt, dt * u and the start of y for tokens [t0, t0 + tokens) of the channels from c on.
template <class D>
HWY_INLINE void PrepareBlock(D d, const ScanTask& s, int64_t c, int64_t t0, int64_t tokens) {
  const auto bias = s.delta_bias ? hn::LoadU(d, s.delta_bias + c) : hn::Zero(d);
  const auto skip = s.D ? hn::LoadU(d, s.D + c) : hn::Zero(d);
  for (int64_t t = 0; t < tokens; ++t) {
    auto dt = hn::Add(hn::LoadU(d, s.delta + (t0 + t) * s.delta_row + c), bias);
    if (s.softplus) dt = Softplus(d, dt);
    const auto u = hn::LoadU(d, s.u + (t0 + t) * s.u_row + c);
    float* scratch = s.scratch + t * kWidth + c;
    hn::StoreU(dt, d, scratch);
    hn::StoreU(hn::Mul(dt, u), d, scratch + kDu);
    hn::StoreU(s.D ? hn::Mul(skip, u) : hn::Zero(d), d, scratch + kY);
  }
}

// Advances kStates states, from n on, of the channels from c on. Without softplus dt may be
// negative and the exponent positive.
template <int kStates, bool kSoftplus, class D, class V = hn::Vec<D>>
HWY_INLINE void AdvanceStates(D d, const ScanTask& s, int64_t c, int64_t n, int64_t t0,
                              int64_t tokens) {
  V A[kStates], h[kStates];
#pragma GCC unroll 8
  for (int i = 0; i < kStates; ++i) {
    A[i] = hn::LoadU(d, s.A + (n + i) * s.A_row + c);
    h[i] = hn::LoadU(d, s.h + (n + i) * s.h_row + c);
  }
  const float* B = s.B + t0 * s.B_row + n;
  const float* C = s.C + t0 * s.C_row + n;
  const int64_t B_row = s.B_row, C_row = s.C_row;
  // dt, du and y lie one behind the other: one address serves all three.
  float* const HWY_RESTRICT scratch = s.scratch + c;
  for (int64_t t = 0; t < tokens; ++t, B += B_row, C += C_row) {
    const V dt = hn::LoadU(d, scratch + t * kWidth);
    const V du = hn::LoadU(d, scratch + t * kWidth + kDu);
    V y = hn::LoadU(d, scratch + t * kWidth + kY);
    V decay[kStates];
#pragma GCC unroll 8
    for (int i = 0; i < kStates; ++i) {
      decay[i] = hn::Mul(dt, A[i]);
      if (!kSoftplus) decay[i] = hn::Min(decay[i], hn::Set(d, 128.0f));
    }
    // A NaN in dt is in du as well, so the decay need not carry it.
    Exp2Many(d, decay);
#pragma GCC unroll 8
    for (int i = 0; i < kStates; ++i) {
      h[i] = hn::MulAdd(h[i], decay[i], hn::Mul(du, hn::Set(d, B[i])));
      y = hn::MulAdd(h[i], hn::Set(d, C[i]), y);
    }
    hn::StoreU(y, d, scratch + t * kWidth + kY);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kStates; ++i) hn::StoreU(h[i], d, s.h + (n + i) * s.h_row + c);
}

template <bool kSoftplus, class D>
HWY_INLINE void AdvanceAllStates(D d, const ScanTask& s, int64_t c, int64_t t0, int64_t tokens) {
  int64_t n = 0;
  for (; n + 4 <= s.d_state; n += 4) AdvanceStates<4, kSoftplus>(d, s, c, n, t0, tokens);
  for (; n < s.d_state; ++n) AdvanceStates<1, kSoftplus>(d, s, c, n, t0, tokens);
}

template <class D>
HWY_INLINE void WriteBlock(D d, const ScanTask& s, int64_t c, int64_t t0, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    auto y = hn::LoadU(d, s.scratch + t * kWidth + c + kY);
    if (s.z) y = hn::Mul(y, Silu(d, hn::LoadU(d, s.z + (t0 + t) * s.z_row + c)));
    hn::StoreU(y, d, s.out + (t0 + t) * s.out_row + c);
  }
}

// One block for the channels from c on, as many as D has lanes.
template <class D>
HWY_NOINLINE void ScanBlock(D d, const ScanTask& s, int64_t c, int64_t t0, int64_t tokens) {
  PrepareBlock(d, s, c, t0, tokens);
  if (s.softplus) {
    AdvanceAllStates<true>(d, s, c, t0, tokens);
  } else {
    AdvanceAllStates<false>(d, s, c, t0, tokens);
  }
  WriteBlock(d, s, c, t0, tokens);
}

void ScanTokens(const ScanTask& s) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t0 = 0; t0 < s.tokens; t0 += kBlock) {
    const int64_t tokens = std::min(kBlock, s.tokens - t0);
    int64_t c = 0;
    for (; c + lanes <= s.width; c += lanes) ScanBlock(d, s, c, t0, tokens);
    for (; c < s.width; ++c) ScanBlock(d1, s, c, t0, tokens);
  }
}

}  // namespace

void SelectiveScan(const SelectiveScanArgs& a, CpuContext& context) {
  const int64_t d_inner = a.u.dim(1), groups = a.B.dim(1), d_state = a.B.dim(2);
  const int64_t channels = d_inner / groups;  // of a group
  const int64_t blocks = (channels + kWidth - 1) / kWidth;
  const int64_t tasks_per_seq = groups * blocks;
  context.reserve_scratch(static_cast<size_t>((3 * kBlock + 2 * d_state) * kWidth));

  // A decode task is a microsecond or less: hand out several at once.
  const int64_t tokens_per_seq = a.batch.n_tokens() / std::max<int64_t>(1, a.batch.n_seqs());
  const int64_t grain = std::clamp<int64_t>(8 / std::max<int64_t>(1, tokens_per_seq), 1, 8);

  const auto run = [&](int64_t begin, int64_t end, int thread) {
    float* scratch = context.scratch(thread);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t seq = task / tasks_per_seq, group = task % tasks_per_seq / blocks;
      const int64_t c0 = group * channels + task % blocks * kWidth;
      const int64_t t0 = a.batch.seq_start[static_cast<size_t>(seq)];
      const int64_t slot = a.batch.state_slot[static_cast<size_t>(seq)];
      ScanTask s;
      s.tokens = a.batch.seq_start[static_cast<size_t>(seq + 1)] - t0;
      s.width = std::min(kWidth, (group + 1) * channels - c0);
      s.d_state = d_state;
      s.out_row = a.out.stride[0];
      s.out = a.out.ptr<float>() + t0 * s.out_row + c0;
      if (slot < 0) {
        for (int64_t t = 0; t < s.tokens; ++t) std::fill_n(s.out + t * s.out_row, s.width, 0.0f);
        continue;
      }
      s.u_row = a.u.stride[0];
      s.u = a.u.ptr<const float>() + t0 * s.u_row + c0;
      s.delta_row = a.delta.stride[0];
      s.delta = a.delta.ptr<const float>() + t0 * s.delta_row + c0;
      s.z_row = a.z.stride[0];
      s.z = a.z ? a.z.ptr<const float>() + t0 * s.z_row + c0 : nullptr;
      s.B_row = a.B.stride[0];
      s.B = a.B.ptr<const float>() + t0 * s.B_row + group * a.B.stride[1];
      s.C_row = a.C.stride[0];
      s.C = a.C.ptr<const float>() + t0 * s.C_row + group * a.C.stride[1];
      s.A_row = a.A_log2e.stride[0];
      s.A = a.A_log2e.ptr<const float>() + c0;
      s.D = a.D ? a.D.ptr<const float>() + c0 : nullptr;
      s.delta_bias = a.delta_bias ? a.delta_bias.ptr<const float>() + c0 : nullptr;
      s.h_row = a.ssm_state.stride[1];
      s.h = a.ssm_state.ptr<float>() + slot * a.ssm_state.stride[0] + c0;
      s.softplus = a.delta_softplus;
      s.scratch = scratch;

      // Over several blocks A and h are used from a compact copy: their rows lie d_inner floats
      // apart, which for powers of two is one and the same set of the L1 cache.
      float* const h = s.h;
      const int64_t h_row = s.h_row;
      const bool compact = s.tokens > kBlock;
      if (compact) {
        float* A_copy = scratch + 3 * kBlock * kWidth;
        float* h_copy = A_copy + d_state * kWidth;
        for (int64_t n = 0; n < d_state; ++n) {
          std::copy_n(s.A + n * s.A_row, s.width, A_copy + n * kWidth);
          std::copy_n(h + n * h_row, s.width, h_copy + n * kWidth);
        }
        s.A = A_copy;
        s.h = h_copy;
        s.A_row = s.h_row = kWidth;
      }
      ScanTokens(s);
      if (compact) {
        for (int64_t n = 0; n < d_state; ++n) std::copy_n(s.h + n * kWidth, s.width, h + n * h_row);
      }
    }
  };
  context.pool.parallel_for(a.batch.n_seqs() * tasks_per_seq, grain, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(SelectiveScan);

void cpu_selective_scan(const SelectiveScanArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, SelectiveScan)(args, context);
}

}  // namespace adder
#endif
