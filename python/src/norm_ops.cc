// Bindings of ops/norm.h. Documented in python/adder/ops.
#include <pybind11/pybind11.h>

#include "bindings.h"
#include "operand.h"
#include "ops/norm.h"

namespace adder::python {
namespace {

namespace py = pybind11;

// The norm behind a gate: mamba_ssm.ops.triton.layernorm_gated.
py::object gated_norm(const std::string& op, py::handle x, py::handle weight, py::handle bias,
                      py::handle z, float eps, int64_t group_size, bool norm_before_gate,
                      bool is_rms_norm) {
  Operands operands(op.c_str());
  ops::NormArgs args;
  args.x = operands.in(x, "x");
  args.weight = operands.in(weight, "weight");
  args.bias = operands.optional(bias, "bias");
  args.z = operands.optional(z, "z");
  args.eps = eps;
  args.group_size = group_size;
  args.norm_before_gate = norm_before_gate;
  args.rms = is_rms_norm;
  py::object out = operands.make_like(x, &args.out);
  operands.run(args, [&](const auto& a) { ops::norm(op, a); });
  return out;
}

// The norm of the residual stream: mamba_ssm.ops.triton.layer_norm. (out, out1 or None, the new
// residual or None)
py::tuple residual_norm(const std::string& op, py::handle x, py::handle weight, py::handle bias,
                        py::handle residual, py::handle x1, py::handle weight1, py::handle bias1,
                        float eps, py::handle rowscale, bool prenorm, bool residual_in_fp32,
                        bool is_rms_norm) {
  Operands operands(op.c_str());
  ops::NormArgs args;
  args.x = operands.in(x, "x");
  args.weight = operands.in(weight, "weight");
  args.bias = operands.optional(bias, "bias");
  args.residual = operands.optional(residual, "residual");
  args.x1 = operands.optional(x1, "x1");
  args.weight1 = operands.optional(weight1, "weight1");
  args.bias1 = operands.optional(bias1, "bias1");
  args.rowscale = operands.optional(rowscale, "rowscale");
  args.eps = eps;
  args.rms = is_rms_norm;
  py::object out = operands.make_like(x, &args.out), out1 = py::none(), new_residual = py::none();
  if (args.weight1) out1 = operands.make_like(x, &args.out1);
  if (prenorm) {
    if (args.residual) {
      new_residual = operands.make_like(residual, &args.residual_out);
    } else if (residual_in_fp32) {
      new_residual = operands.make_float_like(args.x, &args.residual_out);
    } else {
      new_residual = operands.make_like(x, &args.residual_out);
    }
  }
  operands.run(args, [&](const auto& a) { ops::norm(op, a); });
  return py::make_tuple(out, out1, new_residual);
}

}  // namespace

void bind_norm_ops(py::module_& module) {
  module.def("gated_norm", &gated_norm);
  module.def("residual_norm", &residual_norm);
}

}  // namespace adder::python
