// Random problems for ssd_scan.
#pragma once

#include "testing/recurrence.h"

namespace adder::testing {

struct SsdScanProblem {
  int64_t tokens = 0, n_heads = 0, headdim = 0, d_state = 0, n_groups = 1;
  bool softplus = true;
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();
  std::vector<float> x, dt, A_log2e, B, C;
  std::vector<float> D, z, dt_bias;  // empty: not given; D per head or per element

  static SsdScanProblem random(Rng& rng, int64_t tokens, int64_t n_heads, int64_t headdim,
                               int64_t d_state, int64_t n_groups = 1) {
    SsdScanProblem p{tokens, n_heads, headdim, d_state, n_groups};
    p.x = rng.normals(tokens * n_heads * headdim);
    p.dt = rng.uniforms(tokens * n_heads, -4, 1);
    p.A_log2e = rng.uniforms(n_heads, -23, -1.5f);
    const float scale = 1 / std::sqrt(static_cast<float>(d_state));
    p.B = rng.normals(tokens * n_groups * d_state);
    p.C = rng.normals(tokens * n_groups * d_state, scale);
    p.D = rng.normals(n_heads);
    p.z = rng.normals(tokens * n_heads * headdim);
    p.dt_bias = rng.uniforms(n_heads, -1, 0);
    return p;
  }

  int64_t state_size() const { return n_heads * headdim * d_state; }
  int64_t out_width() const { return n_heads * headdim; }
  std::vector<float> random_state(Rng& rng, int64_t slots = 1) const {
    return rng.normals(slots * state_size());
  }

  SsdScanProblem rows(int64_t begin, int64_t count) const {
    SsdScanProblem p = *this;
    p.tokens = count;
    for (auto field : {&SsdScanProblem::x, &SsdScanProblem::dt, &SsdScanProblem::B,
                       &SsdScanProblem::C, &SsdScanProblem::z})
      p.*field = cut_rows(this->*field, tokens, begin, count);
    return p;
  }

  RunResult run(Backend& backend, const Batch& batch, const std::vector<float>& state,
                const Layout& layout = kPacked) const {
    return run_as(DType::kF32, backend, batch, state, layout,
                  [&](const SsdScanArgs& args) { backend.ssd_scan(args); });
  }

  // With activations (x, B, C, z, out) of a dtype, F32 or BF16, by whatever takes the arguments.
  template <typename Scan>
  RunResult run_as(DType activations, Backend& backend, const Batch& batch,
                   const std::vector<float>& state, const Layout& layout, Scan&& scan) const {
    const int64_t slots = static_cast<int64_t>(state.size()) / state_size();
    const auto tensor = [&](const std::vector<int64_t>& dims, const std::vector<float>& values) {
      return values.empty() ? OpTensor() : OpTensor(backend, dims, layout, values);
    };
    const auto active = [&](const std::vector<int64_t>& dims, const std::vector<float>& values) {
      if (activations == DType::kF32) return OpTensor(backend, dims, layout, values);
      std::vector<uint16_t> bits;
      for (const float v : values) bits.push_back(f32_to_bf16(v));
      return OpTensor(backend, activations, dims, layout, bits);
    };
    OpTensor tx = active({tokens, n_heads, headdim}, x);
    OpTensor tdt(backend, {tokens, n_heads}, layout, dt), tA = tensor({n_heads}, A_log2e);
    OpTensor tB = active({tokens, n_groups, d_state}, B),
             tC = active({tokens, n_groups, d_state}, C);
    const bool D_per_head = static_cast<int64_t>(D.size()) == n_heads;
    OpTensor tD = D_per_head ? tensor({n_heads}, D) : tensor({n_heads, headdim}, D);
    OpTensor tz = z.empty() ? OpTensor() : active({tokens, n_heads, headdim}, z);
    OpTensor tbias = tensor({n_heads}, dt_bias);
    OpTensor tstate = tensor({slots, n_heads, headdim, d_state}, state);
    OpTensor tout = active({tokens, n_heads, headdim}, {});
    SsdScanArgs args;
    args.x = tx.view();
    args.dt = tdt.view();
    args.A_log2e = tA.view();
    args.B = tB.view();
    args.C = tC.view();
    args.D = tD.view();
    args.z = tz.view();
    args.dt_bias = tbias.view();
    args.dt_softplus = softplus;
    args.dt_min = dt_min;
    args.dt_max = dt_max;
    args.ssm_state = tstate.view();
    args.out = tout.view();
    args.batch = batch.packed();
    scan(args);
    if (activations == DType::kF32) return {tout.read(), tstate.read()};
    RunResult result{{}, tstate.read()};
    for (const uint16_t bits : tout.read<uint16_t>()) result.out.push_back(bf16_to_f32(bits));
    return result;
  }
};

}  // namespace adder::testing
