// Random problems for selective_scan.
#pragma once

#include "testing/recurrence.h"

namespace adder::testing {

struct SelectiveScanProblem {
  int64_t tokens = 0, d_inner = 0, d_state = 0, n_groups = 1;
  bool softplus = true;
  std::vector<float> u, delta, A_log2e, B, C;
  std::vector<float> D, z, delta_bias;  // empty: not given

  // Sizes as they occur: dt about 0.01..1, A in -16..-1, y of the order of 1 whatever d_state.
  static SelectiveScanProblem random(Rng& rng, int64_t tokens, int64_t d_inner, int64_t d_state,
                                     int64_t n_groups = 1) {
    SelectiveScanProblem p{tokens, d_inner, d_state, n_groups};
    p.u = rng.normals(tokens * d_inner);
    p.delta = rng.uniforms(tokens * d_inner, -4, 1);
    p.A_log2e = rng.uniforms(d_state * d_inner, -23, -1.5f);
    const float scale = 1 / std::sqrt(static_cast<float>(d_state));
    p.B = rng.normals(tokens * n_groups * d_state);
    p.C = rng.normals(tokens * n_groups * d_state, scale);
    p.D = rng.normals(d_inner);
    p.z = rng.normals(tokens * d_inner);
    p.delta_bias = rng.uniforms(d_inner, -1, 0);
    return p;
  }

  int64_t state_size() const { return d_state * d_inner; }
  int64_t out_width() const { return d_inner; }
  std::vector<float> random_state(Rng& rng, int64_t slots = 1) const {
    return rng.normals(slots * state_size());
  }

  SelectiveScanProblem rows(int64_t begin, int64_t count) const {
    SelectiveScanProblem p = *this;
    p.tokens = count;
    for (auto field :
         {&SelectiveScanProblem::u, &SelectiveScanProblem::delta, &SelectiveScanProblem::B,
          &SelectiveScanProblem::C, &SelectiveScanProblem::z})
      p.*field = cut_rows(this->*field, tokens, begin, count);
    return p;
  }

  // in_place: out is u itself.
  RunResult run(Backend& backend, const Batch& batch, const std::vector<float>& state,
                const Layout& layout = kPacked, bool in_place = false) const {
    const auto scan = [&](const SelectiveScanArgs& args) { backend.selective_scan(args); };
    return run_by(scan, backend, batch, state, layout, in_place);
  }

  // By another function on tensors of the backend.
  template <class Scan>
  RunResult run_by(Scan scan, Backend& backend, const Batch& batch, const std::vector<float>& state,
                   const Layout& layout = kPacked, bool in_place = false) const {
    const int64_t slots = static_cast<int64_t>(state.size()) / state_size();
    const auto tensor = [&](const std::vector<int64_t>& dims, const std::vector<float>& values) {
      return OpTensor(backend, dims, layout, values);
    };
    const auto optional = [&](const std::vector<int64_t>& dims, const std::vector<float>& values) {
      return values.empty() ? OpTensor() : tensor(dims, values);
    };
    OpTensor tu = tensor({tokens, d_inner}, u), tdelta = tensor({tokens, d_inner}, delta);
    OpTensor tA = tensor({d_state, d_inner}, A_log2e);
    OpTensor tB = tensor({tokens, n_groups, d_state}, B),
             tC = tensor({tokens, n_groups, d_state}, C);
    OpTensor tD = optional({d_inner}, D), tz = optional({tokens, d_inner}, z);
    OpTensor tbias = optional({d_inner}, delta_bias);
    OpTensor tstate = tensor({slots, d_state, d_inner}, state);
    OpTensor tout = tensor({tokens, d_inner}, {});
    SelectiveScanArgs args;
    args.u = tu.view();
    args.delta = tdelta.view();
    args.A_log2e = tA.view();
    args.B = tB.view();
    args.C = tC.view();
    args.D = tD.view();
    args.z = tz.view();
    args.delta_bias = tbias.view();
    args.delta_softplus = softplus;
    args.ssm_state = tstate.view();
    args.out = in_place ? tu.view() : tout.view();
    args.batch = batch.packed();
    scan(args);
    return {in_place ? tu.read() : tout.read(), tstate.read()};
  }
};

}  // namespace adder::testing
