// Bindings of ops/mamba_inner.h. Documented in python/adder/ops.
#include <pybind11/pybind11.h>

#include "bindings.h"
#include "operand.h"
#include "ops/mamba_inner.h"

namespace adder::python {
namespace {

namespace py = pybind11;

py::object mamba_inner_fn(py::handle xz, py::handle conv1d_weight, py::handle conv1d_bias,
                          py::handle x_proj_weight, py::handle delta_proj_weight,
                          py::handle out_proj_weight, py::handle out_proj_bias, py::handle A,
                          py::handle B, py::handle C, py::handle D, py::handle delta_bias,
                          py::handle B_proj_bias, py::handle C_proj_bias, bool delta_softplus,
                          py::handle b_rms_weight, py::handle c_rms_weight,
                          py::handle dt_rms_weight, float b_c_dt_rms_eps) {
  constexpr const char* kOp = "mamba_inner_fn";
  Operands operands(kOp);
  ops::MambaInnerArgs args;
  args.xz = operands.in(xz, "xz");
  args.conv1d_weight = operands.in(conv1d_weight, "conv1d_weight");
  args.conv1d_bias = operands.optional(conv1d_bias, "conv1d_bias");
  args.x_proj_weight = operands.in(x_proj_weight, "x_proj_weight");
  args.delta_proj_weight = operands.in(delta_proj_weight, "delta_proj_weight");
  args.out_proj_weight = operands.in(out_proj_weight, "out_proj_weight");
  args.out_proj_bias = operands.optional(out_proj_bias, "out_proj_bias");
  args.A = operands.in(A, "A");
  args.B = operands.optional(B, "B");
  args.C = operands.optional(C, "C");
  args.D = operands.optional(D, "D");
  args.delta_bias = operands.optional(delta_bias, "delta_bias");
  args.B_proj_bias = operands.optional(B_proj_bias, "B_proj_bias");
  args.C_proj_bias = operands.optional(C_proj_bias, "C_proj_bias");
  args.delta_softplus = delta_softplus;
  args.b_rms_weight = operands.optional(b_rms_weight, "b_rms_weight");
  args.c_rms_weight = operands.optional(c_rms_weight, "c_rms_weight");
  args.dt_rms_weight = operands.optional(dt_rms_weight, "dt_rms_weight");
  args.b_c_dt_rms_eps = b_c_dt_rms_eps;
  ops::check_rank(kOp, "xz", args.xz, 3);
  ops::check_rank(kOp, "out_proj_weight", args.out_proj_weight, 2);
  py::object out =
      operands.make_same({args.xz.dim(0), args.xz.dim(2), args.out_proj_weight.dim(0)}, &args.out);
  operands.run(args, [](const auto& a) { ops::mamba_inner_fn(a); });
  return out;
}

py::object mamba_split_conv1d_scan_combined(
    py::handle zxbcdt, py::handle conv1d_weight, py::handle conv1d_bias, py::handle dt_bias,
    py::handle A, py::handle D, py::handle initial_states, py::handle seq_idx, float dt_min,
    float dt_max, bool return_final_states, bool silu, py::handle rmsnorm_weight, float rmsnorm_eps,
    py::handle outproj_weight, py::handle outproj_bias, int64_t headdim, int64_t ngroups,
    bool norm_before_gate) {
  Operands operands("mamba_split_conv1d_scan_combined");
  ops::MambaSplitConv1dScanArgs args;
  args.zxbcdt = operands.in(zxbcdt, "zxbcdt");
  args.conv1d_weight = operands.in(conv1d_weight, "conv1d_weight");
  args.conv1d_bias = operands.optional(conv1d_bias, "conv1d_bias");
  args.dt_bias = operands.optional(dt_bias, "dt_bias");
  args.A = operands.in(A, "A");
  args.D = operands.in(D, "D");
  args.initial_states = operands.optional(initial_states, "initial_states");
  args.seq_idx = operands.optional(seq_idx, "seq_idx");
  args.dt_min = dt_min;
  args.dt_max = dt_max;
  args.silu = silu;
  args.rmsnorm_weight = operands.optional(rmsnorm_weight, "rmsnorm_weight");
  args.rmsnorm_eps = rmsnorm_eps;
  args.outproj_weight = operands.optional(outproj_weight, "outproj_weight");
  args.outproj_bias = operands.optional(outproj_bias, "outproj_bias");
  args.headdim = headdim;
  args.ngroups = ngroups;
  args.norm_before_gate = norm_before_gate;
  const ops::MambaSplitSizes s = ops::mamba_split_sizes(args);
  py::object out = operands.make_same({s.batch, s.seqlen, s.d_out}, &args.out);
  py::object final_states = py::none();
  if (return_final_states)
    final_states =
        operands.make_float({s.batch, s.nheads, s.headdim, s.dstate}, false, &args.final_states);
  operands.run(args, [](const auto& a) { ops::mamba_split_conv1d_scan_combined(a); });
  if (!return_final_states) return out;
  return py::make_tuple(out, final_states);
}

}  // namespace

void bind_fused_ops(py::module_& module) {
  module.def("mamba_inner_fn", &mamba_inner_fn);
  module.def("mamba_split_conv1d_scan_combined", &mamba_split_conv1d_scan_combined);
}

}  // namespace adder::python
