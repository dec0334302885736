#include "backends/ref/ref_ops.h"

namespace adder::ref {

void causal_conv1d(const CausalConv1dArgs& a) {
  const int64_t channels = a.x.dim(1), d_conv = a.weight.dim(0), history = d_conv - 1;
  for (int64_t s = 0; s < a.batch.n_seqs(); ++s) {
    const int64_t begin = a.batch.seq_start[static_cast<size_t>(s)];
    const int64_t length = a.batch.seq_start[static_cast<size_t>(s + 1)] - begin;
    const int64_t slot = a.batch.state_slot[static_cast<size_t>(s)];
    if (slot < 0) {
      for (int64_t t = begin; t < begin + length; ++t)
        for (int64_t c = 0; c < channels; ++c) at(a.out, t)[c] = 0;
      continue;
    }
    // The sequence with its history in front: row i < history lies in the state.
    const auto input = [&](int64_t i, int64_t c) {
      return i < history ? at(a.conv_state, slot, i)[c] : at(a.x, begin + i - history)[c];
    };
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = a.bias ? *at(a.bias, c) : 0.0;
        for (int64_t k = 0; k < d_conv; ++k)
          sum += static_cast<double>(at(a.weight, k)[c]) * input(t + k, c);
        at(a.out, begin + t)[c] = static_cast<float>(a.silu ? silu(sum) : sum);
      }
    }
    // Row k takes row k + length, which has not been overwritten yet.
    for (int64_t k = 0; k < history; ++k)
      for (int64_t c = 0; c < channels; ++c) at(a.conv_state, slot, k)[c] = input(k + length, c);
  }
}

}  // namespace adder::ref
