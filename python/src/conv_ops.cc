// Bindings of ops/causal_conv1d.h. Documented in python/adder/ops.
#include <pybind11/pybind11.h>

#include <algorithm>

#include "bindings.h"
#include "operand.h"
#include "ops/causal_conv1d.h"

namespace adder::python {
namespace {

namespace py = pybind11;

py::object causal_conv1d_fn(py::handle x, py::handle weight, py::handle bias, py::handle seq_idx,
                            py::handle initial_states, bool return_final_states,
                            py::handle final_states_out, bool silu) {
  constexpr const char* kOp = "causal_conv1d_fn";
  Operands operands(kOp);
  ops::CausalConv1dFnArgs args;
  args.x = operands.in(x, "x");
  args.weight = operands.in(weight, "weight");
  args.bias = operands.optional(bias, "bias");
  args.seq_idx = operands.optional(seq_idx, "seq_idx");
  args.initial_states = operands.optional(initial_states, "initial_states");
  args.silu = silu;
  ops::check_rank(kOp, "x", args.x, 3);
  ops::check_rank(kOp, "weight", args.weight, 2);
  py::object out = operands.make_like(x, &args.out), final_states = py::none();
  if (return_final_states && !final_states_out.is_none()) {
    args.final_states = operands.in_out(final_states_out, "final_states_out");
    final_states = py::reinterpret_borrow<py::object>(final_states_out);
  } else if (return_final_states) {
    const int64_t width = std::max<int64_t>(args.weight.dim(1), 1);
    final_states =
        operands.make_same({args.x.dim(0), args.x.dim(1), width - 1}, &args.final_states);
  }
  operands.run(args, [](const auto& a) { ops::causal_conv1d_fn(a); });
  if (!return_final_states) return out;
  return py::make_tuple(out, final_states);
}

py::object causal_conv1d_update(py::handle x, py::handle conv_state, py::handle weight,
                                py::handle bias, bool silu, py::handle cache_seqlens,
                                py::handle conv_state_indices) {
  Operands operands("causal_conv1d_update");
  ops::CausalConv1dUpdateArgs args;
  args.x = operands.in(x, "x");
  args.conv_state = operands.in_out(conv_state, "conv_state");
  args.weight = operands.in(weight, "weight");
  args.bias = operands.optional(bias, "bias");
  args.silu = silu;
  args.cache_seqlens = operands.optional(cache_seqlens, "cache_seqlens");
  args.conv_state_indices = operands.optional(conv_state_indices, "conv_state_indices");
  py::object out = operands.make_like(x, &args.out);
  operands.run(args, [](const auto& a) { ops::causal_conv1d_update(a); });
  return out;
}

py::object causal_conv1d_varlen_states(py::handle x, py::handle cu_seqlens, int64_t state_len) {
  constexpr const char* kOp = "causal_conv1d_varlen_states";
  Operands operands(kOp);
  ops::CausalConv1dVarlenStatesArgs args;
  args.x = operands.in(x, "x");
  args.cu_seqlens = operands.in(cu_seqlens, "cu_seqlens");
  ops::check_rank(kOp, "x", args.x, 2);
  ops::check_rank(kOp, "cu_seqlens", args.cu_seqlens, 1);
  const int64_t sequences = std::max<int64_t>(args.cu_seqlens.dim(0) - 1, 0);
  py::object states = operands.make_same({sequences, args.x.dim(1), state_len}, &args.states);
  operands.run(args, [](const auto& a) { ops::causal_conv1d_varlen_states(a); });
  return states;
}

}  // namespace

void bind_conv_ops(py::module_& module) {
  module.def("causal_conv1d_fn", &causal_conv1d_fn);
  module.def("causal_conv1d_update", &causal_conv1d_update);
  module.def("causal_conv1d_varlen_states", &causal_conv1d_varlen_states);
}

}  // namespace adder::python
