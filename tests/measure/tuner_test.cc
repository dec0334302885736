// The tuner decides for another block only when it is clearly faster.
#include "measure/tuner.h"

#include "core/error.h"
#include "engine/engine_testing.h"
#include "engine/synthetic.h"

namespace adder::testing {
namespace {

TEST(Tuner, TheDefaultStaysUnlessAnotherBlockIsClearlyFaster) {
  const BlockTime standard{kDefaultBlock, {1.0, 1.1, 0.9, 1.0}};
  // The same, within the noise, and slower.
  EXPECT_EQ(winning_block({standard}), kDefaultBlock);
  EXPECT_EQ(winning_block({{128, {0.99, 1.09, 0.89, 0.99}}, standard}), kDefaultBlock);
  EXPECT_EQ(winning_block({standard, {512, {1.2, 1.2, 1.2, 1.2}}}), kDefaultBlock);
  // Faster by the median, but in two rounds of four only.
  EXPECT_EQ(winning_block({standard, {512, {0.5, 1.2, 0.5, 1.2}}}), kDefaultBlock);
  // Faster in every round; the fastest of several.
  EXPECT_EQ(winning_block({standard, {512, {0.9, 1.0, 0.8, 0.9}}}), 512);
  EXPECT_EQ(winning_block({{64, {0.7, 0.7, 0.7, 0.7}}, standard, {512, {0.9, 1.0, 0.8, 0.9}}}), 64);
}

std::unique_ptr<Engine> tiny_engine() {
  const SyntheticShape shape = {"tiny mamba", MixerKind::kMamba1, 2, 64, 16, 96};
  EngineOptions options;
  options.threads = 2;
  options.block = kLargestTunedBlock;
  return std::make_unique<Engine>(std::make_shared<Checkpoint>(make_synthetic(shape, DType::kBF16)),
                                  nullptr, options);
}

TEST(Tuner, TheDefaultIsAlwaysACandidate) {
  for (const double budget : {0.0, 0.5}) {
    TuneOptions options;
    options.budget_s = budget;
    const auto engine = tiny_engine();
    const TuneResult r = tune_block(*engine, options);
    EXPECT_EQ(r.prompt % 64, 0);
    int64_t standard = 0, best = 0;
    for (const BlockTime& b : r.blocks) {
      standard += b.block == kDefaultBlock;
      best += b.block == r.best;
      EXPECT_GE(b.seconds.size(), 2u);
      EXPECT_EQ(b.seconds.size(), r.blocks.front().seconds.size());
    }
    EXPECT_EQ(standard, 1);
    EXPECT_EQ(best, 1);
    EXPECT_EQ(engine->block(), r.best);
    EXPECT_EQ(r.gain > 0, r.best != kDefaultBlock);
    EXPECT_EQ(engine->states().free_slots(), 1);
  }
}

TEST(Tuner, AnInterruptionIsAnError) {
  const std::atomic<bool> cancel{true};
  TuneOptions options;
  options.cancel = &cancel;
  EXPECT_THROW(tune_block(*tiny_engine(), options), Error);
}

}  // namespace
}  // namespace adder::testing
