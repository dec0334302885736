// causal_conv1d of every backend and instruction set against the reference.

#include "testing/causal_conv1d_problem.h"

#include "testing/targets.h"

namespace adder::testing {
namespace {

class CausalConv1d : public BackendTest {
 protected:
  void expect_like_ref(const CausalConv1dProblem& p, const Batch& batch,
                       const std::vector<float>& state, const Layout& layout) {
    const RunResult got = p.run(*backend_, batch, state, layout), want = p.run(*ref_, batch, state);
    const std::string what = fmt::format("L {} C {} K {}", p.tokens, p.channels, p.d_conv);
    EXPECT_TRUE(close(got.out, want.out, kDot)) << what;
    EXPECT_TRUE(same_bits(got.state, want.state)) << what << ": the state is a copy of inputs";
  }
};
ADDER_TEST_ALL_TARGETS(CausalConv1d);

TEST_P(CausalConv1d, OddShapesAndLayouts) {
  Rng rng(41);
  const auto one = [&](int64_t tokens, int64_t channels, int64_t d_conv) {
    auto p = CausalConv1dProblem::random(rng, tokens, channels, d_conv);
    const auto state = p.random_state(rng);
    for (const Layout& layout : kLayouts) expect_like_ref(p, Batch::single(tokens), state, layout);
  };
  for (int64_t d_conv = 2; d_conv <= 9; ++d_conv) {
    for (int64_t channels : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 100}) one(5, channels, d_conv);
    for (int64_t tokens = 0; tokens <= 2 * d_conv + 1; ++tokens) one(tokens, 11, d_conv);
  }
  for (int64_t tokens = 0; tokens <= 33; ++tokens) one(tokens, 9, 4);
}

TEST_P(CausalConv1d, WithoutBiasAndActivation) {
  Rng rng(42);
  for (int mask = 0; mask < 4; ++mask)
    for (int64_t tokens : {1, 2, 40}) {
      auto p = CausalConv1dProblem::random(rng, tokens, 13, 4);
      if (mask & 1) p.bias.clear();
      p.silu = (mask & 2) == 0;
      expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd);
    }
}

TEST_P(CausalConv1d, RandomBatches) {
  Rng rng(43);
  const int64_t widths[] = {1, 3, 8, 12, 31, 64, 100};
  for (int round = 0; round < 40; ++round) {
    Batch batch;
    const auto n_seqs = static_cast<int32_t>(rng.below(6));
    for (int32_t i = 0; i < n_seqs; ++i)
      batch.add(rng.below(9) * rng.below(4), rng.below(5) == 0 ? -1 : n_seqs - i);
    const auto p = CausalConv1dProblem::random(rng, batch.seq_start.back(), widths[rng.below(7)],
                                               2 + rng.below(4));
    expect_like_ref(p, batch, p.random_state(rng, n_seqs + 2), kLayouts[rng.below(3)]);
  }
}

TEST_P(CausalConv1d, RealSizes) {
  Rng rng(44);
  const auto p = CausalConv1dProblem::random(rng, 151, 1792, 4);
  expect_like_ref(p, Batch::single(151), p.random_state(rng), kPacked);
  const auto step = CausalConv1dProblem::random(rng, 4, 4128, 4);
  Batch batch;
  for (int32_t i = 0; i < 4; ++i) batch.add(1, 3 - i);
  expect_like_ref(step, batch, step.random_state(rng, 4), kPacked);
}

// SiLU where exp(-v) overflows: -0 or tiny on the left, v itself on the right.
TEST_P(CausalConv1d, ActivationFarOut) {
  CausalConv1dProblem p{1, 9, 2};
  p.x = {-1e30f, -1e4f, -100, -88.8f, -20, 0, 20, 100, 1e30f};
  p.weight.assign(18, 1);
  const std::vector<float> state(9);
  expect_like_ref(p, Batch::single(1), state, kPacked);
}

// NaN passes to the d_conv outputs that see it, in its channel only, and into the state as it is.
TEST_P(CausalConv1d, NanReachesItsWindowOnly) {
  Rng rng(45);
  auto p = CausalConv1dProblem::random(rng, 12, 20, 4);
  const auto state = p.random_state(rng);
  const RunResult clean = p.run(*backend_, Batch::single(12), state);
  p.x[3 * 20 + 5] = NAN;
  const RunResult got = p.run(*backend_, Batch::single(12), state);
  for (int64_t t = 0; t < 12; ++t)
    for (int64_t c = 0; c < 20; ++c) {
      const float g = got.out[t * 20 + c];
      if (c == 5 && t >= 3 && t < 7)
        EXPECT_TRUE(std::isnan(g)) << t;
      else
        EXPECT_EQ(g, clean.out[t * 20 + c]) << t << ", " << c;
    }
}

}  // namespace
}  // namespace adder::testing
