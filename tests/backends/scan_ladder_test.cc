// Every rung of the scan ladder on every instruction set against the reference.
#include "backends/cpu/scan_ladder.h"

#include <cstdlib>

#include "core/error.h"
#include "testing/selective_scan_problem.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

class ScanLadder : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_like_ref(const SelectiveScanProblem& p, const Batch& batch,
                       const std::vector<float>& state, const Layout& layout, bool in_place) {
    const RunResult want = p.run(*ref_, batch, state);
    for (const ScanRung& rung : scan_ladder()) {
      const auto scan = [&](const SelectiveScanArgs& args) { rung.run(args, context_); };
      EXPECT_TRUE(close(p.run_by(scan, *cpu_, batch, state, layout, in_place), want, kScan))
          << rung.name << fmt::format(": L {} D {} N {}", p.tokens, p.d_inner, p.d_state);
    }
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref"), cpu_ = make_cpu_backend(1, GetParam());
  CpuContext context_{1, choose_isa(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, ScanLadder, ::testing::ValuesIn(cpu_isas()),
                         [](const auto& isa) { return isa.param; });

// Around the sizes of blocks, chunks, trees and vectors.
TEST_P(ScanLadder, OddShapes) {
  Rng rng(21);
  for (const int64_t tokens : {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 130}) {
    const auto p = SelectiveScanProblem::random(rng, tokens, 19, 5);
    expect_like_ref(p, Batch::single(tokens), p.random_state(rng), kOdd, false);
  }
  for (const int64_t d_state : {1, 4, 7, 16}) {
    const auto p = SelectiveScanProblem::random(rng, 9, 24, d_state, 3);
    expect_like_ref(p, Batch::single(9), p.random_state(rng), kPacked, true);
  }
}

TEST_P(ScanLadder, SequencesPaddingAndMissingOperands) {
  Rng rng(22);
  Batch batch;
  batch.add(5, 2);
  batch.add(0, 1);
  batch.add(70, -1);
  batch.add(66, 0);
  auto p = SelectiveScanProblem::random(rng, 141, 17, 6);
  const auto state = p.random_state(rng, 3);
  expect_like_ref(p, batch, state, kPacked, false);
  p.D.clear();
  p.z.clear();
  p.delta_bias.clear();
  p.softplus = false;
  p.delta = rng.uniforms(p.tokens * p.d_inner, 0, 0.5f);
  expect_like_ref(p, batch, state, kOdd, false);
}

TEST(ScanLadderNames, RegistryHandsOutTheSameRungs) {
  const std::vector<LadderRung> rungs = make_scan_ladder("cpu");
  ASSERT_EQ(rungs.size(), scan_ladder().size());
  for (size_t i = 0; i < rungs.size(); ++i) EXPECT_EQ(rungs[i].name, scan_ladder()[i].name);
  EXPECT_EQ(rungs.front().name, "naive");
  EXPECT_EQ(rungs.back().name, "tiled");

  Rng rng(23);
  const auto p = SelectiveScanProblem::random(rng, 20, 16, 4);
  const auto state = p.random_state(rng);
  const auto ref = make_backend("ref");
  for (const LadderRung& rung : rungs) {
    EXPECT_FALSE(rung.description.empty());
    EXPECT_TRUE(close(p.run_by(rung.run, *make_backend("cpu", 1), Batch::single(20), state),
                      p.run(*ref, Batch::single(20), state), kScan))
        << rung.name;
    auto wrong = [&](SelectiveScanArgs args) {
      args.D = args.A_log2e;
      rung.run(args);
    };
    EXPECT_THROW(p.run_by(wrong, *make_backend("cpu", 1), Batch::single(20), state), Error);
  }
}

}  // namespace
}  // namespace adder::testing
