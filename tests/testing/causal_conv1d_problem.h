// Random problems for causal_conv1d.
#pragma once

#include "testing/recurrence.h"

namespace adder::testing {

struct CausalConv1dProblem {
  int64_t tokens = 0, channels = 0, d_conv = 4;
  bool silu = true;
  std::vector<float> x, weight;
  std::vector<float> bias;  // empty: not given

  static CausalConv1dProblem random(Rng& rng, int64_t tokens, int64_t channels, int64_t d_conv) {
    CausalConv1dProblem p{tokens, channels, d_conv};
    p.x = rng.normals(tokens * channels);
    p.weight = rng.normals(d_conv * channels);
    p.bias = rng.normals(channels);
    return p;
  }

  int64_t state_size() const { return (d_conv - 1) * channels; }
  int64_t out_width() const { return channels; }
  std::vector<float> random_state(Rng& rng, int64_t slots = 1) const {
    return rng.normals(slots * state_size());
  }

  CausalConv1dProblem rows(int64_t begin, int64_t count) const {
    CausalConv1dProblem p = *this;
    p.tokens = count;
    p.x = cut_rows(x, tokens, begin, count);
    return p;
  }

  RunResult run(Backend& backend, const Batch& batch, const std::vector<float>& state,
                const Layout& layout = kPacked) const {
    const int64_t slots = static_cast<int64_t>(state.size()) / state_size();
    OpTensor tx(backend, {tokens, channels}, layout, x);
    OpTensor tweight(backend, {d_conv, channels}, layout, weight);
    OpTensor tbias = bias.empty() ? OpTensor() : OpTensor(backend, {channels}, layout, bias);
    OpTensor tstate(backend, {slots, d_conv - 1, channels}, layout, state);
    OpTensor tout(backend, {tokens, channels}, layout, {});
    CausalConv1dArgs args;
    args.x = tx.view();
    args.weight = tweight.view();
    args.bias = tbias.view();
    args.conv_state = tstate.view();
    args.silu = silu;
    args.out = tout.view();
    args.batch = batch.packed();
    backend.causal_conv1d(args);
    return {tout.read(), tstate.read()};
  }
};

}  // namespace adder::testing
