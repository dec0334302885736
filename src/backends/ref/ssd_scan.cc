#include <algorithm>
#include <vector>

#include "backends/ref/ref_ops.h"

namespace adder::ref {
namespace {

// One head of one sequence, token after token. `S` is its state (headdim, d_state).
void scan_head(const SsdScanArgs& a, int64_t h, int64_t begin, int64_t end,
               std::vector<double>& S) {
  const int64_t headdim = a.x.dim(2), d_state = a.B.dim(2);
  const int64_t group = h / (a.x.dim(1) / a.B.dim(1));
  for (int64_t t = begin; t < end; ++t) {
    if (state_is_rounded(t - begin)) std::ranges::transform(S, S.begin(), rounded);
    double dt = at(a.dt, t)[h] + (a.dt_bias ? double{*at(a.dt_bias, h)} : 0.0);
    if (a.dt_softplus) dt = softplus(dt);
    dt = std::clamp(dt, double{a.dt_min}, double{a.dt_max});  // lets NaN through
    const double decay = std::exp2(dt * *at(a.A_log2e, h));
    const float* B = at(a.B, t, group);
    const float* C = at(a.C, t, group);
    for (int64_t p = 0; p < headdim; ++p) {
      const double x = at(a.x, t, h)[p];
      double y = 0;
      if (a.D) y = x * (a.D.rank == 2 ? at(a.D, h)[p] : *at(a.D, h));
      for (int64_t n = 0; n < d_state; ++n) {
        double& state = S[static_cast<size_t>(p * d_state + n)];
        state = decay * state + dt * x * B[n];
        y += C[n] * state;
      }
      at(a.out, t, h)[p] = static_cast<float>(a.z ? y * silu(at(a.z, t, h)[p]) : y);
    }
  }
}

}  // namespace

void ssd_scan(const SsdScanArgs& a) {
  const int64_t n_heads = a.x.dim(1), headdim = a.x.dim(2), d_state = a.B.dim(2);
  std::vector<double> S(static_cast<size_t>(headdim * d_state));
  for (int64_t s = 0; s < a.batch.n_seqs(); ++s) {
    const int64_t begin = a.batch.seq_start[static_cast<size_t>(s)];
    const int64_t end = a.batch.seq_start[static_cast<size_t>(s + 1)];
    const int64_t slot = a.batch.state_slot[static_cast<size_t>(s)];
    for (int64_t h = 0; h < n_heads; ++h) {
      if (slot < 0) {
        for (int64_t t = begin; t < end; ++t) std::fill_n(at(a.out, t, h), headdim, 0.0f);
        continue;
      }
      for (int64_t p = 0; p < headdim; ++p)
        std::copy_n(at(a.ssm_state, slot, h, p), d_state, S.begin() + p * d_state);
      scan_head(a, h, begin, end, S);
      for (int64_t p = 0; p < headdim; ++p)
        for (int64_t n = 0; n < d_state; ++n)
          at(a.ssm_state, slot, h, p)[n] =
              static_cast<float>(S[static_cast<size_t>(p * d_state + n)]);
    }
  }
}

}  // namespace adder::ref
