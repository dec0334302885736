// ssd_scan of every backend and instruction set against the reference.

#include "testing/ssd_scan_problem.h"

#include "testing/targets.h"

namespace adder::testing {
namespace {

class SsdScan : public BackendTest {
 protected:
  void expect_like_ref(const SsdScanProblem& p, const Batch& batch, const std::vector<float>& state,
                       const Layout& layout, const std::string& what) {
    EXPECT_TRUE(close(p.run(*backend_, batch, state, layout), p.run(*ref_, batch, state), kScan))
        << what
        << fmt::format(" (L {} H {} P {} N {} G {})", p.tokens, p.n_heads, p.headdim, p.d_state,
                       p.n_groups);
  }
};
ADDER_TEST_ALL_TARGETS(SsdScan);

TEST_P(SsdScan, OddShapesAndLayouts) {
  Rng rng(21);
  const auto one = [&](int64_t tokens, int64_t heads, int64_t headdim, int64_t d_state,
                       int64_t groups) {
    const auto p = SsdScanProblem::random(rng, tokens, heads, headdim, d_state, groups);
    const auto state = p.random_state(rng);
    for (const Layout& layout : kLayouts)
      expect_like_ref(p, Batch::single(tokens), state, layout, "shapes");
  };
  for (int64_t tokens : {1, 7, 67}) {
    for (int64_t headdim : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64}) one(tokens, 2, headdim, 9, 1);
    for (int64_t d_state : {1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64, 100})
      one(tokens, 2, 5, d_state, 1);
    for (int64_t heads : {1, 3, 5}) one(tokens, heads, 4, 8, 1);
  }
  one(66, 1, 3, 256, 1);
  one(3, 1, 2, 300, 1);
  one(5, 1, 128, 128, 1);
}

// Every remainder of small blocks and the edges of chunks.
TEST_P(SsdScan, Lengths) {
  Rng rng(22);
  std::vector<int64_t> lengths;
  for (int64_t tokens = 0; tokens <= 33; ++tokens) lengths.push_back(tokens);
  for (int64_t tokens : {48, 62, 63, 64, 65, 70, 119, 127, 128, 129, 191, 193, 203, 256, 257})
    lengths.push_back(tokens);
  for (int64_t tokens : lengths) {
    const auto p = SsdScanProblem::random(rng, tokens, 2, 8, 16, 1);
    expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd, "lengths");
  }
}

// Head h reads group h / (H / G), in order WWWW XXXX YYYY ZZZZ.
TEST_P(SsdScan, Groups) {
  Rng rng(23);
  for (int64_t groups : {1, 2, 4, 8, 16}) {
    for (int64_t tokens : {1, 20, 80}) {
      auto p = SsdScanProblem::random(rng, tokens, 16, 4, 8, groups);
      const auto state = p.random_state(rng);
      expect_like_ref(p, Batch::single(tokens), state, kPacked, "groups");
      if (groups != 4) continue;
      // The same with each group's B and C written out per head.
      SsdScanProblem wide = p;
      wide.n_groups = 16;
      wide.B.clear(), wide.C.clear();
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < 16; ++h) {
          append(wide.B, std::span(p.B).subspan((t * 4 + h / 4) * 8, 8));
          append(wide.C, std::span(p.C).subspan((t * 4 + h / 4) * 8, 8));
        }
      EXPECT_TRUE(close(p.run(*backend_, Batch::single(tokens), state),
                        wide.run(*ref_, Batch::single(tokens), state), kScan));
    }
  }
  const auto codestral = SsdScanProblem::random(rng, 3, 128, 4, 16, 8);
  expect_like_ref(codestral, Batch::single(3), codestral.random_state(rng), kPacked, "128/8");
}

TEST_P(SsdScan, EveryCombinationOfOptionalOperands) {
  Rng rng(24);
  for (int mask = 0; mask < 32; ++mask) {
    for (int64_t tokens : {1, 6, 70}) {
      auto p = SsdScanProblem::random(rng, tokens, 2, 5, 6);
      if (mask & 1) p.D.clear();
      if (mask & 2) p.z.clear();
      if (mask & 4) p.dt_bias.clear();
      if (mask & 8) {
        p.softplus = false;
        p.dt = rng.uniforms(tokens * p.n_heads, 1, 2);
      }
      if (mask & 16) p.D = rng.normals(p.n_heads * p.headdim);
      expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd,
                      fmt::format("operands {:05b}", mask));
    }
  }
}

TEST_P(SsdScan, RandomBatches) {
  Rng rng(25);
  const int64_t dims[] = {1, 3, 8, 12, 16}, states[] = {1, 5, 8, 16, 33};
  for (int round = 0; round < 40; ++round) {
    Batch batch;
    const auto n_seqs = static_cast<int32_t>(rng.below(6));
    for (int32_t i = 0; i < n_seqs; ++i)
      batch.add(rng.below(40) * rng.below(4), rng.below(5) == 0 ? -1 : n_seqs - i);
    const int64_t groups = 1 + rng.below(2);
    auto p = SsdScanProblem::random(rng, batch.seq_start.back(), groups * (1 + rng.below(3)),
                                    dims[rng.below(5)], states[rng.below(5)], groups);
    if (rng.below(3) == 0) p.z.clear();
    if (rng.below(3) == 0) p.D.clear();
    expect_like_ref(p, batch, p.random_state(rng, n_seqs + 2), kLayouts[rng.below(3)],
                    fmt::format("round {}", round));
  }
}

// mamba2-130m's head size and state, and Codestral's groups.
TEST_P(SsdScan, RealSizes) {
  Rng rng(26);
  const auto p = SsdScanProblem::random(rng, 150, 4, 64, 128);
  expect_like_ref(p, Batch::single(150), p.random_state(rng), kPacked, "prefill");
  const auto step = SsdScanProblem::random(rng, 3, 24, 64, 128);
  Batch batch;
  for (int32_t i = 0; i < 3; ++i) batch.add(1, 2 - i);
  expect_like_ref(step, batch, step.random_state(rng, 3), kPacked, "decode");
}

// Softplus first, then the clamp. A clamp before it would give softplus(0.1).
TEST_P(SsdScan, DtRules) {
  Rng rng(27);
  for (int64_t tokens : {1, 12, 80}) {
    auto p = SsdScanProblem::random(rng, tokens, 5, 3, 4);
    p.dt_bias.clear();
    const float raw[] = {100, -100, 88, -88, 20, 20.001f, 19.999f, 0, -20, 60, 1e4f, -1e4f};
    for (size_t i = 0; i < p.dt.size(); ++i) p.dt[i] = raw[i % 12];
    const auto state = p.random_state(rng);
    expect_like_ref(p, Batch::single(tokens), state, kPacked, "no limit");
    p.dt_min = 0.001f, p.dt_max = 0.1f;
    expect_like_ref(p, Batch::single(tokens), state, kPacked, "limits");
    EXPECT_TRUE(all_finite(p.run(*backend_, Batch::single(tokens), state).out));
  }
  SsdScanProblem p{1, 1, 1, 1, 1};
  p.x = {1}, p.A_log2e = {0}, p.B = {1}, p.C = {1}, p.dt_max = 0.1f;
  p.dt = {100};
  EXPECT_FLOAT_EQ(p.run(*backend_, Batch::single(1), {0}).state[0], 0.1f);
  p.dt = {-100}, p.dt_min = 0.001f;
  EXPECT_FLOAT_EQ(p.run(*backend_, Batch::single(1), {0}).state[0], 0.001f);
}

// A form that pads a chunk with rows of dt = 0 before the bias adds softplus(dt_bias) > 0 for each.
TEST_P(SsdScan, RowsBehindTheEndDoNotCount) {
  Rng rng(28);
  for (int64_t tokens : {1, 48, 63, 65}) {
    auto p = SsdScanProblem::random(rng, tokens, 2, 4, 8);
    p.dt_bias.assign(2, 3.0f);
    expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd, "big bias");
  }
}

// A form that takes exp of differences before masking s > t, or of the positive
// sum, overflows at these sizes.
TEST_P(SsdScan, StrongAndNoDecayStayFinite) {
  Rng rng(29);
  for (int64_t tokens : {64, 256}) {
    auto p = SsdScanProblem::random(rng, tokens, 6, 4, 8);
    p.softplus = false;
    p.dt_bias.clear();
    p.dt = rng.uniforms(tokens * p.n_heads, 0, 6);
    for (size_t i = 0; i < p.dt.size(); i += 7) p.dt[i] = 0;
    const float strengths[] = {0, 1, 10, 100, 1e3f, 1e4f};
    for (size_t h = 0; h < 6; ++h) p.A_log2e[h] = -1.442695f * strengths[h];
    for (float& b : p.B) b *= 0.05f;  // without decay the state is a random walk
    for (auto* values : {&p.x, &p.B, &p.C, &p.z}) round_to_bf16(*values);
    const auto state = p.random_state(rng);
    const RunResult got = p.run(*backend_, Batch::single(tokens), state);
    EXPECT_TRUE(all_finite(got.out) && all_finite(got.state));
    EXPECT_TRUE(close(got, p.run(*ref_, Batch::single(tokens), state), kScan)) << tokens;
  }
}

// Large steps followed by small ones: the running sum of dt * A reaches 1e4 where its float32
// spacing is 1e-3, so a difference of two such sums is off by 1e-3 and the decay by as much.
// Whatever form a backend takes, the result is held to the recurrence.
TEST_P(SsdScan, SmallStepsBehindLargeOnes) {
  Rng rng(30);
  for (float strength : {4.0f, 16.0f, 256.0f}) {
    auto p = SsdScanProblem::random(rng, 64, 3, 4, 8);
    p.softplus = false;
    p.dt_bias.clear();
    p.A_log2e.assign(3, -1.442695f * strength);
    for (int64_t t = 0; t < 64; ++t)
      for (int64_t h = 0; h < 3; ++h)
        p.dt[t * 3 + h] = t < 24 ? rng.uniform(3, 6) : rng.uniform(0, 0.5f / strength);
    expect_like_ref(p, Batch::single(64), p.random_state(rng), kPacked,
                    fmt::format("A {}", -strength));
  }
}

TEST_P(SsdScan, GateFarOut) {
  SsdScanProblem p{1, 1, 9, 1, 1, false};
  p.x.assign(9, 1), p.dt = {1}, p.A_log2e = {-1}, p.B = {1}, p.C = {1};
  p.z = {-1e30f, -1e4f, -100, -88.8f, -20, 0, 20, 100, 1e30f};
  const std::vector<float> state(9);
  const RunResult got = p.run(*backend_, Batch::single(1), state);
  EXPECT_TRUE(all_finite(got.out));
  EXPECT_TRUE(close(got, p.run(*ref_, Batch::single(1), state), kScan));
}

// The promise of kSsdChunkAlign.
TEST_P(SsdScan, PiecesCutAtChunkEdgesGiveTheSameBits) {
  Rng rng(31);
  const auto p = SsdScanProblem::random(rng, 300, 3, 16, 16);
  const auto state = p.random_state(rng);
  const RunResult whole = p.run(*backend_, Batch::single(300), state);
  const std::vector<int64_t> cuts[] = {{64, 64, 64, 64, 44}, {128, 172}, {64, 192, 44}, {256, 44}};
  for (const auto& cut : cuts)
    EXPECT_TRUE(same_bits(run_pieces(*backend_, p, cut, state), whole)) << cut[0];
}

}  // namespace
}  // namespace adder::testing
