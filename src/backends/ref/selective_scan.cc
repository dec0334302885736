#include <algorithm>
#include <vector>

#include "backends/ref/ref_ops.h"

namespace adder::ref {
namespace {

// One channel of one sequence, token after token. `h` is its state (d_state).
void scan_channel(const SelectiveScanArgs& a, int64_t d, int64_t begin, int64_t end,
                  std::vector<double>& h) {
  const int64_t group = d / (a.u.dim(1) / a.B.dim(1));
  for (int64_t t = begin; t < end; ++t) {
    if (state_is_rounded(t - begin)) std::ranges::transform(h, h.begin(), rounded);
    const double u = at(a.u, t)[d];
    double dt = at(a.delta, t)[d] + (a.delta_bias ? double{*at(a.delta_bias, d)} : 0.0);
    if (a.delta_softplus) dt = softplus(dt);
    const float* B = at(a.B, t, group);
    const float* C = at(a.C, t, group);
    double y = a.D ? *at(a.D, d) * u : 0.0;
    for (size_t n = 0; n < h.size(); ++n) {
      const double A_log2e = at(a.A_log2e, static_cast<int64_t>(n))[d];
      h[n] = std::exp2(dt * A_log2e) * h[n] + dt * B[n] * u;
      y += C[n] * h[n];
    }
    at(a.out, t)[d] = static_cast<float>(a.z ? y * silu(at(a.z, t)[d]) : y);
  }
}

}  // namespace

void selective_scan(const SelectiveScanArgs& a) {
  const int64_t d_inner = a.u.dim(1), d_state = a.B.dim(2);
  std::vector<double> h(static_cast<size_t>(d_state));
  for (int64_t s = 0; s < a.batch.n_seqs(); ++s) {
    const int64_t begin = a.batch.seq_start[static_cast<size_t>(s)];
    const int64_t end = a.batch.seq_start[static_cast<size_t>(s + 1)];
    const int64_t slot = a.batch.state_slot[static_cast<size_t>(s)];
    for (int64_t d = 0; d < d_inner; ++d) {
      if (slot < 0) {
        for (int64_t t = begin; t < end; ++t) at(a.out, t)[d] = 0;
        continue;
      }
      for (int64_t n = 0; n < d_state; ++n) h[static_cast<size_t>(n)] = at(a.ssm_state, slot, n)[d];
      scan_channel(a, d, begin, end, h);
      for (int64_t n = 0; n < d_state; ++n)
        at(a.ssm_state, slot, n)[d] = static_cast<float>(h[static_cast<size_t>(n)]);
    }
  }
}

}  // namespace adder::ref
