// selective_scan of every backend and instruction set against the reference.

#include "testing/selective_scan_problem.h"

#include "testing/targets.h"

namespace adder::testing {
namespace {

class SelectiveScan : public BackendTest {
 protected:
  void expect_like_ref(const SelectiveScanProblem& p, const Batch& batch,
                       const std::vector<float>& state, const Layout& layout,
                       const std::string& what) {
    EXPECT_TRUE(close(p.run(*backend_, batch, state, layout), p.run(*ref_, batch, state), kScan))
        << what
        << fmt::format(" (L {} D {} N {} G {})", p.tokens, p.d_inner, p.d_state, p.n_groups);
  }
};
ADDER_TEST_ALL_TARGETS(SelectiveScan);

// One size at a time over odd ones, whole vectors and vectors and a bit, in every layout.
TEST_P(SelectiveScan, OddShapesAndLayouts) {
  Rng rng(11);
  const auto one = [&](int64_t tokens, int64_t d_inner, int64_t d_state, int64_t groups) {
    const auto p = SelectiveScanProblem::random(rng, tokens, d_inner, d_state, groups);
    const auto state = p.random_state(rng);
    for (const Layout& layout : kLayouts)
      expect_like_ref(p, Batch::single(tokens), state, layout, "shapes");
  };
  for (int64_t d_inner : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100}) one(5, d_inner, 16, 1);
  for (int64_t d_state : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 64, 256, 300}) one(5, 9, d_state, 1);
  for (int64_t tokens = 0; tokens <= 33; ++tokens) one(tokens, 9, 5, 1);
  for (int64_t groups : {1, 2, 3, 4, 6, 12, 24}) one(3, 24, 5, groups);
}

TEST_P(SelectiveScan, EveryCombinationOfOptionalOperands) {
  Rng rng(12);
  for (int mask = 0; mask < 16; ++mask) {
    for (int64_t tokens : {1, 6}) {
      auto p = SelectiveScanProblem::random(rng, tokens, 13, 6);
      if (mask & 1) p.D.clear();
      if (mask & 2) p.z.clear();
      if (mask & 4) p.delta_bias.clear();
      if (mask & 8) {
        p.softplus = false;
        p.delta = rng.uniforms(tokens * p.d_inner, 1, 2);
      }
      expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd,
                      fmt::format("operands {:04b}", mask));
    }
  }
}

TEST_P(SelectiveScan, RandomBatchesInSize) {
  Rng rng(13);
  const int64_t widths[] = {1, 3, 8, 12, 31, 64, 100}, states[] = {1, 5, 8, 16, 33};
  for (int round = 0; round < 40; ++round) {
    Batch batch;
    const auto n_seqs = static_cast<int32_t>(rng.below(6));
    for (int32_t i = 0; i < n_seqs; ++i)
      batch.add(rng.below(9) * rng.below(4), rng.below(5) == 0 ? -1 : n_seqs - i);
    auto p = SelectiveScanProblem::random(rng, batch.seq_start.back(), widths[rng.below(7)],
                                          states[rng.below(5)]);
    if (p.d_inner % 4 == 0) p.n_groups = 4;
    p.B = rng.normals(p.tokens * p.n_groups * p.d_state);
    p.C = rng.normals(p.tokens * p.n_groups * p.d_state, 0.3f);
    if (rng.below(3) == 0) p.z.clear();
    if (rng.below(3) == 0) p.D.clear();
    expect_like_ref(p, batch, p.random_state(rng, n_seqs + 2), kLayouts[rng.below(3)],
                    fmt::format("round {}", round));
  }
}

// The shapes of mamba-130m and of a long prompt.
TEST_P(SelectiveScan, RealSizes) {
  Rng rng(14);
  const auto p = SelectiveScanProblem::random(rng, 257, 256, 16);
  expect_like_ref(p, Batch::single(257), p.random_state(rng), kPacked, "prefill");
  const auto step = SelectiveScanProblem::random(rng, 4, 1536, 16);
  Batch batch;
  for (int32_t i = 0; i < 4; ++i) batch.add(1, 3 - i);
  expect_like_ref(step, batch, step.random_state(rng, 4), kPacked, "decode");
}

TEST_P(SelectiveScan, OutMayBeU) {
  Rng rng(15);
  for (int64_t tokens : {1, 2, 9, 70}) {
    const auto p = SelectiveScanProblem::random(rng, tokens, 19, 7);
    const auto state = p.random_state(rng);
    const Batch batch = Batch::single(tokens);
    EXPECT_TRUE(same_bits(p.run(*backend_, batch, state, kOdd, /*in_place=*/true),
                          p.run(*backend_, batch, state, kOdd)))
        << tokens << " tokens";
  }
}

// Raw dt of 100 must come out as 100 and not as Inf, -100 as nothing, and
// around the threshold of 20 both branches agree.
TEST_P(SelectiveScan, SoftplusFarOut) {
  Rng rng(16);
  auto p = SelectiveScanProblem::random(rng, 12, 10, 4);
  p.delta_bias.clear();
  const float raw[] = {100, -100, 88, -88, 20, 20.001f, 19.999f, 0, -20, 60, 1e4f, -1e4f};
  for (int64_t t = 0; t < p.tokens; ++t)
    for (int64_t d = 0; d < p.d_inner; ++d) p.delta[t * p.d_inner + d] = raw[(t + d) % 12];
  const auto state = p.random_state(rng);
  for (int64_t tokens : {1, 12}) {
    const RunResult got = p.rows(0, tokens).run(*backend_, Batch::single(tokens), state);
    EXPECT_TRUE(all_finite(got.out) && all_finite(got.state));
    EXPECT_TRUE(close(got, p.rows(0, tokens).run(*ref_, Batch::single(tokens), state), kScan));
  }
}

// A sum that 1 + exp(v) loses in float32: softplus must keep its relative accuracy there, or a
// state that integrates for thousands of tokens drifts.
TEST_P(SelectiveScan, SoftplusKeepsSmallSteps) {
  SelectiveScanProblem p{1, 1, 1, 1};
  p.A_log2e = {0}, p.B = {1}, p.C = {1};
  for (float raw : {-5.f, -10.f, -15.f, -17.f, -20.f, -40.f, -80.f}) {
    p.delta = {raw};
    p.u = {std::exp(-raw)};
    const RunResult got = p.run(*backend_, Batch::single(1), {0});
    const double want = std::log1p(std::exp(double{raw})) * p.u[0];
    EXPECT_NEAR(got.out[0], want, 1e-5 * want) << raw;
    EXPECT_NEAR(got.state[0], want, 1e-5 * want) << raw;
  }
}

// Decays down to exp(-6e4) and none at all.
TEST_P(SelectiveScan, StrongAndNoDecayStayFinite) {
  Rng rng(17);
  auto p = SelectiveScanProblem::random(rng, 256, 8, 6);
  p.softplus = false;
  p.delta_bias.clear();
  p.delta = rng.uniforms(p.tokens * p.d_inner, 0, 6);
  for (size_t i = 0; i < p.delta.size(); i += 7) p.delta[i] = 0;
  const float strengths[] = {0, 1, 10, 100, 1e3f, 1e4f};
  for (int64_t n = 0; n < p.d_state; ++n)
    for (int64_t d = 0; d < p.d_inner; ++d)
      p.A_log2e[n * p.d_inner + d] = -1.442695f * strengths[n];
  // A state without decay grows like a random walk; keep it of the order of 1.
  for (float& b : p.B) b *= 0.05f;
  for (auto* values : {&p.u, &p.B, &p.C, &p.z}) round_to_bf16(*values);
  const auto state = p.random_state(rng);
  const RunResult got = p.run(*backend_, Batch::single(p.tokens), state);
  EXPECT_TRUE(all_finite(got.out) && all_finite(got.state));
  EXPECT_TRUE(close(got, p.run(*ref_, Batch::single(p.tokens), state), kScan));
}

// Decays below 2^-127 take another path, for a block of tokens at a time: whole and token by token,
// with strong and weak ones mixed, the bits are the same.
TEST_P(SelectiveScan, StrongDecaysKeepTheBitsOfASplit) {
  if (GetParam().isa.empty()) return;  // the reference rounds its float64 state after each call
  Rng rng(19);
  auto p = SelectiveScanProblem::random(rng, 40, 37, 6);
  for (float& a : p.A_log2e) a *= 20;
  for (size_t i = 0; i < p.delta.size(); i += 61) p.delta[i] = 30;
  std::vector<float> state = p.random_state(rng);
  const RunResult whole = p.run(*backend_, Batch::single(40), state);
  std::vector<float> out;
  for (int64_t t = 0; t < 40; ++t) {
    const RunResult step = p.rows(t, 1).run(*backend_, Batch::single(1), state);
    out.insert(out.end(), step.out.begin(), step.out.end());
    state = step.state;
  }
  EXPECT_TRUE(same_bits(RunResult{out, state}, whole));
}

// The gate must not turn into Inf or NaN where exp(-z) does.
TEST_P(SelectiveScan, GateFarOut) {
  SelectiveScanProblem p{1, 9, 1, 1, false};
  p.u.assign(9, 1), p.delta.assign(9, 1), p.A_log2e.assign(9, -1), p.B = {1}, p.C = {1};
  p.z = {-1e30f, -1e4f, -100, -88.8f, -20, 0, 20, 100, 1e30f};
  const std::vector<float> state(9);
  const RunResult got = p.run(*backend_, Batch::single(1), state);
  EXPECT_TRUE(all_finite(got.out));
  EXPECT_TRUE(close(got, p.run(*ref_, Batch::single(1), state), kScan));
}

TEST_P(SelectiveScan, NanReachesItsOwnChannelOnly) {
  Rng rng(18);
  auto p = SelectiveScanProblem::random(rng, 8, 20, 4);
  const auto state = p.random_state(rng);
  const RunResult clean = p.run(*backend_, Batch::single(8), state);
  p.u[3 * 20 + 5] = NAN;
  const RunResult got = p.run(*backend_, Batch::single(8), state);
  for (int64_t t = 0; t < 8; ++t)
    for (int64_t d = 0; d < 20; ++d) {
      const float g = got.out[t * 20 + d];
      if (d == 5 && t >= 3)
        EXPECT_TRUE(std::isnan(g)) << t;
      else
        EXPECT_EQ(g, clean.out[t * 20 + d]) << t << ", " << d;
    }
}

}  // namespace
}  // namespace adder::testing
