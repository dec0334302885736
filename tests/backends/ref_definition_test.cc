// The reference backend against the same mathematics written another way: closed sums instead of
// recurrences, the chunked matrix form of SSD, and long double. What it rounds once to float32 must
// agree to within that rounding.

#include <gtest/gtest.h>

#include "testing/causal_conv1d_problem.h"
#include "testing/selective_scan_problem.h"
#include "testing/ssd_scan_problem.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

// ref also rounds states to float32 every kSsdChunkAlign rows, an error of 2^-25 of the state on
// average that decays from there on; a sum over d_state of such errors stays below this.
constexpr Tolerance kRoundedStates{2e-7, 0x1p-23, 1e-13};

double log1p_exp(double v) {
  return v > 20 ? v : std::log(1 + std::exp(v));
}
double times_sigmoid(double v) {
  return v * (0.5 + 0.5 * std::tanh(v / 2));
}

// h[t] = exp2(A * (P[t] - P[0])) h0 + sum_s exp2(A * (P[t] - P[s])) dt[s] B[s] u[s], P the running
// sum of dt: no recurrence.
RunResult closed_form(const SelectiveScanProblem& p, const std::vector<float>& state) {
  RunResult r{std::vector<float>(p.u.size()), state};
  const int64_t L = p.tokens, D = p.d_inner, N = p.d_state, G = p.n_groups;
  for (int64_t d = 0; d < D; ++d) {
    std::vector<long double> P(1, 0), dt;
    for (int64_t t = 0; t < L; ++t) {
      double v = p.delta[t * D + d];
      if (!p.delta_bias.empty()) v += p.delta_bias[d];
      dt.push_back(p.softplus ? log1p_exp(v) : v);
      P.push_back(P.back() + dt.back());
    }
    const int64_t g = d * G / D;
    std::vector<long double> y(L, 0);
    for (int64_t n = 0; n < N; ++n) {
      const long double A = p.A_log2e[n * D + d], h0 = state[n * D + d];
      for (int64_t t = 0; t < L; ++t) {
        long double h = std::exp2(A * P[t + 1]) * h0;
        for (int64_t s = 0; s <= t; ++s)
          h += std::exp2(A * (P[t + 1] - P[s + 1])) * dt[s] * p.B[(s * G + g) * N + n] *
               p.u[s * D + d];
        y[t] += p.C[(t * G + g) * N + n] * h;
        if (t == L - 1) r.state[n * D + d] = static_cast<float>(h);
      }
    }
    for (int64_t t = 0; t < L; ++t) {
      if (!p.D.empty()) y[t] += static_cast<long double>(p.D[d]) * p.u[t * D + d];
      if (!p.z.empty()) y[t] *= times_sigmoid(p.z[t * D + d]);
      r.out[t * D + d] = static_cast<float>(y[t]);
    }
  }
  return r;
}

// arXiv 2405.21060, section 6: inside a chunk the masked matrix (C B^T * decay) times x, between
// chunks the states. Every exponent is a difference that is <= 0.
RunResult chunked_form(const SsdScanProblem& p, std::vector<float> state, int64_t chunk) {
  RunResult r{std::vector<float>(p.x.size()), state};
  const int64_t H = p.n_heads, P = p.headdim, N = p.d_state, G = p.n_groups;
  for (int64_t h = 0; h < H; ++h) {
    const int64_t g = h * G / H;
    std::vector<double> S(state.begin() + h * P * N, state.begin() + (h + 1) * P * N);
    for (int64_t begin = 0; begin < p.tokens; begin += chunk) {
      const int64_t Q = std::min(chunk, p.tokens - begin);
      std::vector<double> dt(Q), l(Q);
      for (int64_t i = 0; i < Q; ++i) {
        double v = p.dt[(begin + i) * H + h];
        if (!p.dt_bias.empty()) v += p.dt_bias[h];
        if (p.softplus) v = log1p_exp(v);
        dt[i] = std::min<double>(std::max<double>(v, p.dt_min), p.dt_max);
        l[i] = (i > 0 ? l[i - 1] : 0) + dt[i] * p.A_log2e[h];
      }
      const auto B = [&](int64_t i, int64_t n) -> double {
        return p.B[((begin + i) * G + g) * N + n];
      };
      const auto C = [&](int64_t i, int64_t n) -> double {
        return p.C[((begin + i) * G + g) * N + n];
      };
      const auto x = [&](int64_t i, int64_t q) -> double {
        return p.x[((begin + i) * H + h) * P + q];
      };
      std::vector<double> y(Q * P), next(P * N);
      for (int64_t i = 0; i < Q; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          double cb = 0;
          for (int64_t n = 0; n < N; ++n) cb += C(i, n) * B(j, n);
          for (int64_t q = 0; q < P; ++q)
            y[i * P + q] += cb * std::exp2(l[i] - l[j]) * dt[j] * x(j, q);
        }
        for (int64_t q = 0; q < P; ++q) {
          for (int64_t n = 0; n < N; ++n) y[i * P + q] += std::exp2(l[i]) * S[q * N + n] * C(i, n);
          if (!p.D.empty())
            y[i * P + q] += x(i, q) * (p.D.size() == p.A_log2e.size() ? p.D[h] : p.D[h * P + q]);
          const int64_t at = ((begin + i) * H + h) * P + q;
          r.out[at] = static_cast<float>(p.z.empty() ? y[i * P + q]
                                                     : y[i * P + q] * times_sigmoid(p.z[at]));
        }
      }
      for (int64_t q = 0; q < P; ++q)
        for (int64_t n = 0; n < N; ++n) {
          next[q * N + n] = std::exp2(l[Q - 1]) * S[q * N + n];
          for (int64_t i = 0; i < Q; ++i)
            next[q * N + n] += std::exp2(l[Q - 1] - l[i]) * dt[i] * x(i, q) * B(i, n);
        }
      S = next;
    }
    for (int64_t i = 0; i < P * N; ++i) r.state[h * P * N + i] = static_cast<float>(S[i]);
  }
  return r;
}

class RefDefinition : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> ref_ = make_backend("ref");
};

TEST_F(RefDefinition, SelectiveScanIsItsClosedForm) {
  Rng rng(1);
  for (int64_t tokens : {1, 2, 7, 40, 64, 65, 130}) {
    auto p = SelectiveScanProblem::random(rng, tokens, 6, 5, 3);
    p.softplus = tokens != 40;
    if (!p.softplus) p.delta = rng.uniforms(tokens * p.d_inner, 1, 2);
    if (tokens == 7) p.D.clear(), p.z.clear(), p.delta_bias.clear();
    const auto state = p.random_state(rng);
    EXPECT_TRUE(close(p.run(*ref_, Batch::single(tokens), state), closed_form(p, state),
                      tokens <= kSsdChunkAlign ? kRoundedOnce : kRoundedStates))
        << tokens << " tokens";
  }
}

// The chunk must not matter, whole or with a remainder.
TEST_F(RefDefinition, SsdScanIsItsChunkedFormForEveryChunk) {
  Rng rng(2);
  for (int64_t tokens : {1, 5, 48, 70, 119, 203}) {
    auto p = SsdScanProblem::random(rng, tokens, 4, 3, 5, 2);
    if (tokens == 5) p.D.clear(), p.z.clear(), p.dt_bias.clear();
    if (tokens == 70) p.D = rng.normals(p.n_heads * p.headdim);
    if (tokens == 119) p.dt_min = 0.05f, p.dt_max = 0.3f;
    const auto state = p.random_state(rng);
    const RunResult got = p.run(*ref_, Batch::single(tokens), state);
    for (int64_t chunk : {16, 17, 63, 64, 256})
      EXPECT_TRUE(close(got, chunked_form(p, state, chunk),
                        tokens <= kSsdChunkAlign ? kRoundedOnce : kRoundedStates))
          << tokens << " tokens, chunk " << chunk;
  }
}

TEST_F(RefDefinition, CausalConv1dIsAConvolutionOverStateAndInput) {
  Rng rng(3);
  for (int64_t d_conv = 2; d_conv <= 5; ++d_conv) {
    for (int64_t tokens : {0, 1, 2, 3, 9}) {
      auto p = CausalConv1dProblem::random(rng, tokens, 3, d_conv);
      if (tokens == 2) p.bias.clear();
      p.silu = tokens != 3;
      const auto state = p.random_state(rng);
      std::vector<float> series = state;
      append(series, p.x);
      std::vector<double> out(p.x.size());
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t c = 0; c < p.channels; ++c) {
          long double sum = 0;
          for (int64_t k = d_conv - 1; k >= 0; --k)
            sum += static_cast<long double>(p.weight[k * p.channels + c]) *
                   series[(t + k) * p.channels + c];
          if (!p.bias.empty()) sum += p.bias[c];
          const auto v = static_cast<double>(sum);
          out[t * p.channels + c] = p.silu ? times_sigmoid(v) : v;
        }
      const RunResult got = p.run(*ref_, Batch::single(tokens), state);
      EXPECT_TRUE(close(got.out, out, kRoundedOnce)) << "K " << d_conv << ", L " << tokens;
      EXPECT_TRUE(same_bits(got.state, std::span(series).last(state.size())));
    }
  }
}

TEST_F(RefDefinition, KnownValues) {
  // One channel, one state, worked out by hand: A = -ln 2 (A_log2e = -1), dt = 1, so the state
  // halves at each token: h = 0.5 * 8 + 1 * 3 * 2 = 10, then 0.5 * 10 + 1 * (-1) * 4 = 1.
  SelectiveScanProblem p{2, 1, 1, 1, false};
  p.u = {2, 4}, p.delta = {1, 1}, p.A_log2e = {-1}, p.B = {3, -1}, p.C = {0.5f, 2}, p.D = {10};
  const RunResult got = p.run(*ref_, Batch::single(2), {8});
  EXPECT_EQ(got.out, (std::vector<float>{0.5f * 10 + 20, 2 * 1 + 40}));
  EXPECT_EQ(got.state, std::vector<float>{1});

  SsdScanProblem q{2, 1, 2, 1, 1, false};
  q.x = {2, -2, 4, 0}, q.dt = {1, 1}, q.A_log2e = {-1}, q.B = {3, -1}, q.C = {0.5f, 2};
  const RunResult ssd = q.run(*ref_, Batch::single(2), {8, 0});
  EXPECT_EQ(ssd.out, (std::vector<float>{5, -3, 2, -6}));
  EXPECT_EQ(ssd.state, (std::vector<float>{1, -3}));

  CausalConv1dProblem c{3, 1, 3, false};
  c.x = {1, 2, 3}, c.weight = {100, 10, 1}, c.bias = {0.5f};
  const RunResult conv = c.run(*ref_, Batch::single(3), {7, 8});
  EXPECT_EQ(conv.out, (std::vector<float>{781.5f, 812.5f, 123.5f}));
  EXPECT_EQ(conv.state, (std::vector<float>{2, 3}));
}

}  // namespace
}  // namespace adder::testing
