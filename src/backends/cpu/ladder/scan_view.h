// What the rungs of the scan ladder share: one sequence's operands as plain pointers, and the
// scalar functions of the formula.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/selective_scan.h"

namespace adder::ladder {

// Rows count from the sequence's first token. Strides in floats.
struct ScanView {
  const SelectiveScanArgs& args;
  int64_t begin, tokens, d_inner, d_state, slot;

  const float* row(const Tensor& t, int64_t token) const {
    return t.ptr<const float>() + (begin + token) * t.stride[0];
  }
  float u(int64_t t, int64_t d) const { return row(args.u, t)[d]; }
  float dt(int64_t t, int64_t d) const {
    float v = row(args.delta, t)[d];
    if (args.delta_bias) v += args.delta_bias.ptr<const float>()[d];
    if (!args.delta_softplus) return v;
    return v > 20.0f ? v : std::log1p(std::exp(v));
  }
  float A(int64_t n, int64_t d) const {
    return args.A_log2e.ptr<const float>()[n * args.A_log2e.stride[0] + d];
  }
  // (d_state) of a token for the group of channel d.
  const float* B(int64_t t, int64_t d) const {
    return row(args.B, t) + group(d) * args.B.stride[1];
  }
  const float* C(int64_t t, int64_t d) const {
    return row(args.C, t) + group(d) * args.C.stride[1];
  }
  int64_t group(int64_t d) const { return d / (d_inner / args.B.dim(1)); }
  float* h(int64_t n) const {
    return args.ssm_state.ptr<float>() + slot * args.ssm_state.stride[0] +
           n * args.ssm_state.stride[1];
  }
  float* out(int64_t t) const { return args.out.ptr<float>() + (begin + t) * args.out.stride[0]; }
  // out = (sum + D * u) * silu(z)
  void finish(int64_t t, int64_t d, float sum) const {
    if (args.D) sum += args.D.ptr<const float>()[d] * u(t, d);
    if (args.z) {
      const float z = row(args.z, t)[d];
      sum *= z / (1.0f + std::exp(-z));
    }
    out(t)[d] = sum;
  }
};

// Calls scan(ScanView) for each sequence and writes zeros for padding.
template <class Scan>
void for_each_sequence(const SelectiveScanArgs& a, Scan scan) {
  for (int64_t s = 0; s < a.batch.n_seqs(); ++s) {
    const int64_t begin = a.batch.seq_start[static_cast<size_t>(s)];
    const int64_t end = a.batch.seq_start[static_cast<size_t>(s + 1)];
    const ScanView view{a,          begin,      end - begin,
                        a.u.dim(1), a.B.dim(2), a.batch.state_slot[static_cast<size_t>(s)]};
    if (view.slot >= 0) {
      scan(view);
      continue;
    }
    for (int64_t t = 0; t < view.tokens; ++t) std::fill_n(view.out(t), view.d_inner, 0.0f);
  }
}

void scan_naive(const SelectiveScanArgs& args);
void scan_unrolled(const SelectiveScanArgs& args);
void scan_blelloch(const SelectiveScanArgs& args);
void scan_chunked(const SelectiveScanArgs& args);

}  // namespace adder::ladder
