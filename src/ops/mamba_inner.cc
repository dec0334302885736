#include "ops/mamba_inner.h"

#include <optional>

#include "core/error.h"
#include "ops/causal_conv1d.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/selective_scan.h"
#include "ops/temporary.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

constexpr std::string_view kInnerOp = "mamba_inner_fn";

struct InnerSizes {
  int64_t batch, dim, seqlen, dt_rank, state;  // state: columns of B or of C in x_proj's output
};

InnerSizes checked(const MambaInnerArgs& a) {
  check_rank(kInnerOp, "xz", a.xz, 3);
  check_rank(kInnerOp, "A", a.A, 2);
  check_rank(kInnerOp, "conv1d_weight", a.conv1d_weight, 3);
  check_rank(kInnerOp, "delta_proj_weight", a.delta_proj_weight, 2);
  check_rank(kInnerOp, "out_proj_weight", a.out_proj_weight, 2);
  check_float(kInnerOp, "xz", a.xz);
  InnerSizes s;
  s.batch = a.xz.dim(0);
  s.dim = a.A.dim(0);
  s.seqlen = a.xz.dim(2);
  s.dt_rank = a.delta_proj_weight.dim(1);
  s.state = a.A.dim(1) * (a.A.is_complex ? 2 : 1);
  const int64_t d_model = a.out_proj_weight.dim(0);
  check_operand(kInnerOp, "xz", a.xz, {s.batch, 2 * s.dim, s.seqlen});
  check_operand(kInnerOp, "conv1d_weight", a.conv1d_weight, {s.dim, 1, a.conv1d_weight.dim(2)});
  ADDER_CHECK(a.conv1d_weight.dim(2) >= 1,
              "{}: conv1d_weight: expected a width of at least 1, got 0", kInnerOp);
  if (a.conv1d_bias) check_operand(kInnerOp, "conv1d_bias", a.conv1d_bias, {s.dim});
  check_operand(kInnerOp, "x_proj_weight", a.x_proj_weight,
                {s.dt_rank + (a.B ? 0 : s.state) + (a.C ? 0 : s.state), s.dim});
  check_operand(kInnerOp, "delta_proj_weight", a.delta_proj_weight, {s.dim, s.dt_rank});
  check_operand(kInnerOp, "out_proj_weight", a.out_proj_weight, {d_model, s.dim});
  if (a.out_proj_bias) check_operand(kInnerOp, "out_proj_bias", a.out_proj_bias, {d_model});
  if (a.B_proj_bias) check_operand(kInnerOp, "B_proj_bias", a.B_proj_bias, {s.state});
  if (a.C_proj_bias) check_operand(kInnerOp, "C_proj_bias", a.C_proj_bias, {s.state});
  if (a.b_rms_weight) check_operand(kInnerOp, "b_rms_weight", a.b_rms_weight, {s.state});
  if (a.c_rms_weight) check_operand(kInnerOp, "c_rms_weight", a.c_rms_weight, {s.state});
  if (a.dt_rms_weight) check_operand(kInnerOp, "dt_rms_weight", a.dt_rms_weight, {s.dim});
  check_operand(kInnerOp, "out", a.out, {s.batch, s.seqlen, d_model});
  check_output(kInnerOp, "out", a.out);
  return s;
}

// x (batch, seqlen, columns) in place.
void rms_norm(const ArrayView& x, const ArrayView& weight, float eps) {
  Temporary out{x.dim(0), x.dim(1), x.dim(2)};
  NormArgs args;
  args.x = x;
  args.weight = weight;
  args.eps = eps;
  args.rms = true;
  args.out = out.view();
  norm(kInnerOp, args);
  copy_exact(out.view(), x);
}

// B or C, columns [begin, begin + state) of x_dbl, as selective_scan_fn wants it.
ArrayView coefficient(const ArrayView& x_dbl, int64_t begin, const InnerSizes& s,
                      const ArrayView& bias, const ArrayView& rms_weight, const MambaInnerArgs& a,
                      std::optional<Temporary>* pairs) {
  const ArrayView x = x_dbl.slice(2, begin, s.state);
  auto* data = reinterpret_cast<float*>(x.data);
  const int64_t row = x_dbl.dim(2);
  if (bias) {
    for (int64_t n = 0; n < s.state; ++n) {
      const ArrayView at = bias.select(0, n);
      const float value = load_float(at.data, at.dtype);
      for (int64_t r = 0; r < s.batch * s.seqlen; ++r) data[r * row + n] += value;
    }
  }
  if (rms_weight) rms_norm(x, rms_weight, a.b_c_dt_rms_eps);
  if (!a.A.is_complex) return x.permute({0, 2, 1});
  // (state, pair) of a step to (pair) of a state's steps.
  const int64_t dstate = s.state / 2;
  pairs->emplace(std::initializer_list<int64_t>{s.batch, s.seqlen, 2, dstate});
  float* to = (*pairs)->data();
  for (int64_t r = 0; r < s.batch * s.seqlen; ++r)
    for (int64_t n = 0; n < s.state; ++n)
      to[r * s.state + n % 2 * dstate + n / 2] = data[r * row + n];
  ArrayView view(to, DType::kF32, {s.batch, 2 * s.seqlen, dstate});
  return view.permute({0, 2, 1});
}

}  // namespace

void mamba_inner_fn(const MambaInnerArgs& a) {
  const InnerSizes s = checked(a);
  if (a.out.empty()) return;
  // Channels last, which is what the backends work on.
  Temporary u{s.batch, s.seqlen, s.dim}, delta{s.batch, s.seqlen, s.dim},
      y{s.batch, s.seqlen, s.dim};
  const auto channels_first = [](const Temporary& x) { return x.view().permute({0, 2, 1}); };

  CausalConv1dFnArgs conv;
  conv.x = a.xz.slice(1, 0, s.dim);
  conv.weight = a.conv1d_weight.select(1, 0);
  conv.bias = a.conv1d_bias;
  conv.silu = true;
  conv.out = channels_first(u);
  causal_conv1d_fn(conv);

  Temporary x_dbl{s.batch, s.seqlen, a.x_proj_weight.dim(0)};
  linear({u.view(), a.x_proj_weight, {}, x_dbl.view()});
  linear({x_dbl.view().slice(2, 0, s.dt_rank), a.delta_proj_weight, {}, delta.view()});
  if (a.dt_rms_weight) rms_norm(delta.view(), a.dt_rms_weight, a.b_c_dt_rms_eps);

  std::optional<Temporary> B_pairs, C_pairs;
  SelectiveScanFnArgs scan;
  scan.u = channels_first(u);
  scan.delta = channels_first(delta);
  scan.A = a.A;
  scan.B =
      a.B ? a.B
          : coefficient(x_dbl.view(), s.dt_rank, s, a.B_proj_bias, a.b_rms_weight, a, &B_pairs);
  scan.C = a.C ? a.C
               : coefficient(x_dbl.view(), x_dbl.view().dim(2) - s.state, s, a.C_proj_bias,
                             a.c_rms_weight, a, &C_pairs);
  scan.D = a.D;
  scan.z = a.xz.slice(1, s.dim, s.dim);
  scan.delta_bias = a.delta_bias;
  scan.delta_softplus = a.delta_softplus;
  scan.out = channels_first(y);
  selective_scan_fn(scan, kInnerOp);
  linear({y.view(), a.out_proj_weight, a.out_proj_bias, a.out});
}

}  // namespace adder::ops
