// Bindings of the scans: ops/selective_scan.h and its kin. Documented in python/adder/ops.
#include <pybind11/pybind11.h>

#include <algorithm>

#include "bindings.h"
#include "operand.h"
#include "ops/mamba_chunk_scan.h"
#include "ops/selective_scan.h"
#include "ops/selective_state_update.h"

namespace adder::python {
namespace {

namespace py = pybind11;

py::object selective_scan_fn(py::handle u, py::handle delta, py::handle A, py::handle B,
                             py::handle C, py::handle D, py::handle z, py::handle delta_bias,
                             bool delta_softplus, bool return_last_state,
                             py::handle initial_state) {
  constexpr const char* kOp = "selective_scan_fn";
  Operands operands(kOp);
  ops::SelectiveScanFnArgs args;
  args.u = operands.in(u, "u");
  args.delta = operands.in(delta, "delta");
  args.A = operands.in(A, "A");
  args.B = operands.in(B, "B");
  args.C = operands.in(C, "C");
  args.D = operands.optional(D, "D");
  args.z = operands.optional(z, "z");
  args.delta_bias = operands.optional(delta_bias, "delta_bias");
  args.delta_softplus = delta_softplus;
  args.initial_state = operands.optional(initial_state, "initial_state");
  ops::check_rank(kOp, "u", args.u, 3);
  ops::check_rank(kOp, "A", args.A, 2);
  py::object out = operands.make_like(u, &args.out);
  py::object last_state = py::none();
  if (return_last_state)
    last_state = operands.make_float({args.u.dim(0), args.u.dim(1), args.A.dim(1)},
                                     args.A.is_complex, &args.last_state);
  operands.run(args, [](const auto& a) { ops::selective_scan_fn(a); });
  if (!return_last_state) return out;
  return py::make_tuple(out, last_state);
}

py::object selective_state_update(py::handle state, py::handle x, py::handle dt, py::handle A,
                                  py::handle B, py::handle C, py::handle D, py::handle z,
                                  py::handle dt_bias, bool dt_softplus,
                                  py::handle state_batch_indices) {
  Operands operands("selective_state_update");
  ops::SelectiveStateUpdateArgs args;
  args.state = operands.in_out(state, "state");
  args.x = operands.in(x, "x");
  args.dt = operands.in(dt, "dt");
  args.A = operands.in(A, "A");
  args.B = operands.in(B, "B");
  args.C = operands.in(C, "C");
  args.D = operands.optional(D, "D");
  args.z = operands.optional(z, "z");
  args.dt_bias = operands.optional(dt_bias, "dt_bias");
  args.dt_softplus = dt_softplus;
  args.state_batch_indices = operands.optional(state_batch_indices, "state_batch_indices");
  py::object out = operands.make_like(x, &args.out);
  operands.run(args, [](const auto& a) { ops::selective_state_update(a); });
  return out;
}

py::object mamba_chunk_scan_combined(py::handle x, py::handle dt, py::handle A, py::handle B,
                                     py::handle C, py::handle D, py::handle z, py::handle dt_bias,
                                     py::handle initial_states, py::handle seq_idx,
                                     py::handle cu_seqlens, bool dt_softplus, float dt_min,
                                     float dt_max, bool return_final_states,
                                     bool return_varlen_states) {
  constexpr const char* kOp = "mamba_chunk_scan_combined";
  Operands operands(kOp);
  ops::MambaChunkScanArgs args;
  args.x = operands.in(x, "x");
  args.dt = operands.in(dt, "dt");
  args.A = operands.in(A, "A");
  args.B = operands.in(B, "B");
  args.C = operands.in(C, "C");
  args.D = operands.optional(D, "D");
  args.z = operands.optional(z, "z");
  args.dt_bias = operands.optional(dt_bias, "dt_bias");
  args.initial_states = operands.optional(initial_states, "initial_states");
  args.seq_idx = operands.optional(seq_idx, "seq_idx");
  args.cu_seqlens = operands.optional(cu_seqlens, "cu_seqlens");
  args.dt_softplus = dt_softplus;
  args.dt_min = dt_min;
  args.dt_max = dt_max;
  ops::check_rank(kOp, "x", args.x, 4);
  ops::check_rank(kOp, "B", args.B, 4);
  py::list results;
  results.append(operands.make_like(x, &args.out));
  const int64_t nheads = args.x.dim(2), headdim = args.x.dim(3), dstate = args.B.dim(3);
  if (return_final_states)
    results.append(
        operands.make_float({args.x.dim(0), nheads, headdim, dstate}, false, &args.final_states));
  if (return_varlen_states) {
    ops::check_rank(kOp, "cu_seqlens", args.cu_seqlens, 1);
    const int64_t sequences = std::max<int64_t>(args.cu_seqlens.dim(0) - 1, 0);
    results.append(
        operands.make_float({sequences, nheads, headdim, dstate}, false, &args.varlen_states));
  }
  operands.run(args, [](const auto& a) { ops::mamba_chunk_scan_combined(a); });
  if (results.size() == 1) return results[0];
  return py::tuple(results);
}

}  // namespace

void bind_scan_ops(py::module_& module) {
  module.def("mamba_chunk_scan_combined", &mamba_chunk_scan_combined);
  module.def("selective_scan_fn", &selective_scan_fn);
  module.def("selective_state_update", &selective_state_update);
}

}  // namespace adder::python
