#include <algorithm>

#include "core/error.h"
#include "ops/causal_conv1d.h"
#include "ops/linear.h"
#include "ops/mamba_chunk_scan.h"
#include "ops/mamba_inner.h"
#include "ops/norm.h"
#include "ops/plain_scan.h"
#include "ops/runtime.h"
#include "ops/temporary.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

constexpr std::string_view kSplitOp = "mamba_split_conv1d_scan_combined";

// silu(first half) * second half, of (batch, seqlen, 2 * d_mlp).
void gated_mlp(const ArrayView& zx0, const ArrayView& out) {
  const int64_t d_mlp = out.dim(2), seqlen = out.dim(1);
  run_tasks(out.dim(0) * seqlen, 16 * d_mlp, [&](int64_t task) {
    const ArrayView from = zx0.select(0, task / seqlen).slice(0, task % seqlen, 1);
    Scratch scratch(2 * Scratch::padded(d_mlp));
    float *gate = scratch.take(d_mlp), *value = scratch.take(d_mlp);
    gather(from.slice(1, 0, d_mlp), gate, d_mlp);
    gather(from.slice(1, d_mlp, d_mlp), value, d_mlp);
    for (int64_t i = 0; i < d_mlp; ++i) value[i] *= silu(gate[i]);
    scatter(value, d_mlp, out.select(0, task / seqlen).slice(0, task % seqlen, 1));
  });
}

}  // namespace

MambaSplitSizes mamba_split_sizes(const MambaSplitConv1dScanArgs& a) {
  check_rank(kSplitOp, "zxbcdt", a.zxbcdt, 3);
  check_float(kSplitOp, "zxbcdt", a.zxbcdt);
  check_rank(kSplitOp, "A", a.A, 1);
  check_rank(kSplitOp, "conv1d_weight", a.conv1d_weight, 2);
  ADDER_CHECK(a.D.given && (a.D.rank == 1 || a.D.rank == 2),
              "{}: D: expected (nheads,) or (nheads, headdim), got {}", kSplitOp, a.D.describe());
  ADDER_CHECK(a.D.rank == 2 || (a.headdim > 0 && a.headdim <= a.conv1d_weight.dim(0)),
              "{}: headdim: expected 1 to {}, as D has 1 axis, got {}", kSplitOp,
              a.conv1d_weight.dim(0), a.headdim);
  MambaSplitSizes s;
  s.batch = a.zxbcdt.dim(0);
  s.seqlen = a.zxbcdt.dim(1);
  s.nheads = a.A.dim(0);
  s.headdim = a.D.rank == 2 ? a.D.dim(1) : a.headdim;
  s.ngroups = a.ngroups;
  ADDER_CHECK(s.ngroups > 0 && s.ngroups <= s.nheads && s.nheads % s.ngroups == 0,
              "{}: ngroups: expected a divisor of nheads = {}, got {}", kSplitOp, s.nheads,
              s.ngroups);
  const int64_t states = a.conv1d_weight.dim(0) - s.dim();  // 2 * ngroups * dstate
  ADDER_CHECK(
      states >= 0 && states % (2 * s.ngroups) == 0,
      "{}: conv1d_weight: expected dim + 2 * ngroups * dstate = {} + {} * dstate rows, got {}",
      kSplitOp, s.dim(), 2 * s.ngroups, a.conv1d_weight.dim(0));
  s.dstate = states / (2 * s.ngroups);
  const int64_t more = a.zxbcdt.dim(2) - 2 * s.dim() - states - s.nheads;
  ADDER_CHECK(
      more >= 0 && more % 2 == 0,
      "{}: zxbcdt: expected 2 * dim + 2 * ngroups * dstate + nheads = {} columns and an even "
      "number more, got {}",
      kSplitOp, 2 * s.dim() + states + s.nheads, a.zxbcdt.dim(2));
  s.d_mlp = more / 2;
  s.d_out = s.d_mlp + s.dim();
  if (a.outproj_weight) {
    check_rank(kSplitOp, "outproj_weight", a.outproj_weight, 2);
    check_operand(kSplitOp, "outproj_weight", a.outproj_weight, {a.outproj_weight.dim(0), s.d_out});
    s.d_out = a.outproj_weight.dim(0);
    if (a.outproj_bias) check_operand(kSplitOp, "outproj_bias", a.outproj_bias, {s.d_out});
  } else {
    ADDER_CHECK(!a.outproj_bias, "{}: outproj_bias: expected None without outproj_weight, got {}",
                kSplitOp, a.outproj_bias.describe());
  }
  check_operand(kSplitOp, "conv1d_weight", a.conv1d_weight,
                {s.dim() + states, std::max<int64_t>(a.conv1d_weight.dim(1), 1)});
  if (a.conv1d_bias) check_operand(kSplitOp, "conv1d_bias", a.conv1d_bias, {s.dim() + states});
  if (a.seq_idx) {
    check_shape(kSplitOp, "seq_idx", a.seq_idx, {s.batch, s.seqlen});
    check_integer(kSplitOp, "seq_idx", a.seq_idx);
  }
  if (a.rmsnorm_weight) check_operand(kSplitOp, "rmsnorm_weight", a.rmsnorm_weight, {s.dim()});
  return s;
}

void mamba_split_conv1d_scan_combined(const MambaSplitConv1dScanArgs& a) {
  const MambaSplitSizes s = mamba_split_sizes(a);
  const int64_t dim = s.dim(), states = s.ngroups * s.dstate, channels = dim + 2 * states;
  check_operand(kSplitOp, "out", a.out, {s.batch, s.seqlen, s.d_out});
  check_output(kSplitOp, "out", a.out);
  const ArrayView z = a.zxbcdt.slice(2, 2 * s.d_mlp, dim);
  Temporary conv_out{s.batch, s.seqlen, channels};
  CausalConv1dFnArgs conv;
  conv.x = a.zxbcdt.slice(2, 2 * s.d_mlp + dim, channels).permute({0, 2, 1});
  conv.weight = a.conv1d_weight;
  conv.bias = a.conv1d_bias;
  conv.seq_idx = a.seq_idx;
  conv.silu = a.silu;
  conv.out = conv_out.view().permute({0, 2, 1});
  causal_conv1d_fn(conv);

  // Without a projection the scan, or the norm, writes the result itself.
  Temporary inner{s.batch, s.seqlen, a.outproj_weight ? s.d_mlp + dim : 0};
  const ArrayView joined = a.outproj_weight ? inner.view() : a.out;
  const ArrayView y = joined.slice(2, s.d_mlp, dim);
  Temporary before_norm{s.batch, s.seqlen, a.rmsnorm_weight ? dim : 0};
  const auto heads = [&](const ArrayView& x) { return x.split(2, s.nheads, s.headdim); };
  const auto groups = [&](int64_t begin) {
    return conv_out.view().slice(2, begin, states).split(2, s.ngroups, s.dstate);
  };
  MambaChunkScanArgs scan;
  scan.x = heads(conv_out.view().slice(2, 0, dim));
  scan.dt = a.zxbcdt.slice(2, a.zxbcdt.dim(2) - s.nheads, s.nheads);
  scan.A = a.A;
  scan.B = groups(dim);
  scan.C = groups(dim + states);
  scan.D = a.D;
  if (!a.rmsnorm_weight) scan.z = heads(z);
  scan.dt_bias = a.dt_bias;
  scan.initial_states = a.initial_states;
  scan.seq_idx = a.seq_idx;
  scan.dt_softplus = true;
  scan.dt_min = a.dt_min;
  scan.dt_max = a.dt_max;
  scan.out = heads(a.rmsnorm_weight ? before_norm.view() : y);
  scan.final_states = a.final_states;
  mamba_chunk_scan_combined(scan, kSplitOp);

  if (a.rmsnorm_weight) {
    NormArgs gated;
    gated.x = before_norm.view();
    gated.z = z;
    gated.weight = a.rmsnorm_weight;
    gated.eps = a.rmsnorm_eps;
    gated.group_size = dim / s.ngroups;
    gated.norm_before_gate = a.norm_before_gate;
    gated.rms = true;
    gated.out = y;
    norm(kSplitOp, gated);
  }
  if (s.d_mlp > 0) gated_mlp(a.zxbcdt.slice(2, 0, 2 * s.d_mlp), joined.slice(2, 0, s.d_mlp));
  if (a.outproj_weight) linear({joined, a.outproj_weight, a.outproj_bias, a.out});
}

}  // namespace adder::ops
