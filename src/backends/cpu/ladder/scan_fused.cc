// The scan ladder's first rung with vectors, and the list of all rungs. Time step, decay, state,
// output and gate in one pass over neighbouring channels in the lanes: nothing is written out in
// between, but one token after the other over all channels, so that the state (d_state, d_inner)
// and A stream through the cache for each token, and every vector's 16 exponentials wait for the
// same few registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/ladder/scan_fused.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/ladder/scan_view.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/scan_ladder.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace {

// One token of the channels from c on, which belong to one group.
template <class D>
HWY_INLINE void FusedStep(D d, const ladder::ScanView& v, int64_t t, int64_t c) {
  const SelectiveScanArgs& a = v.args;
  auto dt = hn::LoadU(d, v.row(a.delta, t) + c);
  if (a.delta_bias) dt = hn::Add(dt, hn::LoadU(d, a.delta_bias.ptr<const float>() + c));
  if (a.delta_softplus) dt = Softplus(d, dt);
  const auto u = hn::LoadU(d, v.row(a.u, t) + c);
  const auto du = hn::Mul(dt, u);
  auto y = a.D ? hn::Mul(hn::LoadU(d, a.D.ptr<const float>() + c), u) : hn::Zero(d);
  const float *B = v.B(t, c), *C = v.C(t, c);
  for (int64_t n = 0; n < v.d_state; ++n) {
    const float* A = a.A_log2e.ptr<const float>() + n * a.A_log2e.stride[0];
    const auto decay = Exp2(d, hn::Mul(dt, hn::LoadU(d, A + c)));
    const auto h = hn::MulAdd(decay, hn::LoadU(d, v.h(n) + c), hn::Mul(du, hn::Set(d, B[n])));
    hn::StoreU(h, d, v.h(n) + c);
    y = hn::MulAdd(h, hn::Set(d, C[n]), y);
  }
  if (a.z) y = hn::Mul(y, Silu(d, hn::LoadU(d, v.row(a.z, t) + c)));
  hn::StoreU(y, d, v.out(t) + c);
}

}  // namespace

void ScanFused(const SelectiveScanArgs& args) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  ladder::for_each_sequence(args, [&](const ladder::ScanView& v) HWY_ATTR {
    const int64_t width = v.d_inner / args.B.dim(1);  // of a group
    for (int64_t t = 0; t < v.tokens; ++t) {
      for (int64_t end = width; end <= v.d_inner; end += width) {
        int64_t c = end - width;
        for (; c + lanes <= end; c += lanes) FusedStep(d, v, t, c);
        for (; c < end; ++c) FusedStep(d1, v, t, c);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(ScanFused);

static void scan_fused(const SelectiveScanArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, ScanFused)(args);
}

std::span<const ScanRung> scan_ladder() {
  static constexpr ScanRung kRungs[] = {
      {"naive", "scalar loops, token by token; the state streams through the cache",
       [](const SelectiveScanArgs& a, CpuContext&) { ladder::scan_naive(a); }},
      {"unrolled", "scalar, channel by channel, 4 states at a time in registers",
       [](const SelectiveScanArgs& a, CpuContext&) { ladder::scan_unrolled(a); }},
      {"blelloch", "scalar, a work-efficient parallel scan over the tokens",
       [](const SelectiveScanArgs& a, CpuContext&) { ladder::scan_blelloch(a); }},
      {"chunked", "scalar, serial in chunks of 64 tokens, a carry between them",
       [](const SelectiveScanArgs& a, CpuContext&) { ladder::scan_chunked(a); }},
      {"fused", "channels in vectors, one pass from dt to the gate, token by token", &scan_fused},
      {"tiled", "vectors in tiles of 16 tokens and 64 channels that stay in the L1 cache",
       &cpu_selective_scan},
  };
  return kRungs;
}

}  // namespace adder
#endif
