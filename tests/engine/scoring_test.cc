#include "engine/scoring.h"

#include <gtest/gtest.h>

#include "engine/engine_testing.h"
#include "engine/logprobs.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

// As in golden_test: float32 models of two or three layers against a float64 oracle.
constexpr Tolerance kOracle{2e-5, 2e-4};

std::vector<float> row(const std::vector<float>& logits, size_t i, size_t vocab) {
  const auto begin = logits.begin() + static_cast<ptrdiff_t>(i * vocab);
  return {begin, begin + static_cast<ptrdiff_t>(vocab)};
}

class Scoring : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine_ = golden_engine(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Family, Scoring, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(Scoring, LastLogitsAreTheOracles) {
  const auto expected = golden_json(GetParam());
  const auto prompt = ids_of(expected["prompt"]);
  const auto vocab = static_cast<size_t>(engine_->config().vocab_rows);
  const auto all = last_logits(*engine_, prompt, 29);
  ASSERT_EQ(all.size(), 29 * vocab);
  for (const auto& [position, want] : expected["logits_rows"].items()) {
    EXPECT_TRUE(
        close(row(all, std::stoul(position), vocab), want.get<std::vector<double>>(), kOracle));
  }
  const auto last = last_logits(*engine_, prompt, 1);
  EXPECT_TRUE(close(last, expected["logits_last"].get<std::vector<double>>(), kOracle));
  EXPECT_TRUE(same_bits(last, row(all, 28, vocab)));
  EXPECT_EQ(engine_->states().free_slots(), 1);
}

TEST_P(Scoring, BlocksAndRowsAtATimeDecideNothing) {
  const auto prompt = random_ids(1, 150);
  const auto want_logits = last_logits(*engine_, prompt, 100);
  const auto want_nll = next_token_nll(*engine_, prompt);
  for (const int64_t block : {1, 7, 64, 128}) {
    for (const int64_t rows : {1, 5, 200}) {
      SCOPED_TRACE(fmt::format("block {}, rows {}", block, rows));
      const auto engine = golden_engine(GetParam(), {.block = block, .logit_rows = rows});
      const auto logits = last_logits(*engine, prompt, 100);
      const auto nll = next_token_nll(*engine, prompt);
      if (block % kSsdChunkAlign == 0) {
        EXPECT_TRUE(same_bits(logits, want_logits));
        EXPECT_EQ(nll, want_nll);
      } else {
        EXPECT_TRUE(close(logits, want_logits, kReplayLogits));
        EXPECT_TRUE(close(nll, want_nll, kReplayLogits));
      }
    }
  }
}

TEST_P(Scoring, NllIsThatOfTheLogits) {
  const auto prompt = random_ids(2, 40);
  const auto vocab = static_cast<size_t>(engine_->config().vocab_rows);
  const auto limit = static_cast<size_t>(engine_->vocab_limit());
  const auto logits = last_logits(*engine_, prompt, 40);
  const auto nll = next_token_nll(*engine_, prompt);
  ASSERT_EQ(nll.size(), 39u);
  for (size_t i = 0; i < 39; ++i) {
    const auto at = row(logits, i, vocab);
    const double norm = log_sum_exp(std::span(at).first(limit));
    EXPECT_EQ(nll[i], norm - static_cast<double>(at[static_cast<size_t>(prompt[i + 1])])) << i;
    EXPECT_GT(nll[i], 0);
  }
}

TEST_P(Scoring, ProgressIsReportedPerBlock) {
  const auto engine = golden_engine(GetParam(), {.block = 16});
  std::vector<int64_t> done;
  next_token_nll(*engine, random_ids(3, 41), [&](int64_t n) { done.push_back(n); });
  EXPECT_EQ(done, (std::vector<int64_t>{16, 32, 40}));
}

TEST_P(Scoring, Edges) {
  EXPECT_TRUE(next_token_nll(*engine_, {}).empty());
  EXPECT_TRUE(next_token_nll(*engine_, random_ids(4, 1)).empty());
  const auto two = random_ids(4, 2);
  EXPECT_EQ(next_token_nll(*engine_, two).size(), 1u);
  for (const int64_t last : {-1, 0, 3}) {
    expect_bad_input([&] { last_logits(*engine_, two, last); },
                     fmt::format("last: expected 1 to 2 positions, got {}", last));
  }
  expect_bad_input([&] { last_logits(*engine_, {}, 1); }, "last: expected 1 to 0");
  const std::vector<int32_t> negative = {1, -1}, outside = {1, 100000};
  for (const auto* bad : {&negative, &outside}) {
    // The last token is only predicted, but must be one all the same.
    expect_bad_input([&] { next_token_nll(*engine_, *bad); }, "at position 1");
    expect_bad_input([&] { last_logits(*engine_, *bad, 1); }, "at position 1");
  }
  EXPECT_EQ(engine_->states().free_slots(), 1);
}

TEST(ScoringVocabulary, PaddingIsNeverPredicted) {
  const auto engine = golden_engine("mamba1_state_spaces_bin");  // 101 ids in 104 rows
  ASSERT_EQ(engine->vocab_limit(), 101);
  EXPECT_EQ(next_token_nll(*engine, std::vector<int32_t>{1, 100}).size(), 1u);
  EXPECT_EQ(next_token_nll(*engine, std::vector<int32_t>{103, 100}).size(), 1u);
  expect_bad_input(
      [&] {
        next_token_nll(*engine, std::vector<int32_t>{1, 101});
      },
      "expected ids from 0 to 100 (the rest is padding), got 101 at position 1");
  double sum = 0;  // over what can follow
  for (int32_t id = 0; id < 101; ++id) {
    sum += std::exp(-next_token_nll(*engine, std::vector<int32_t>{5, id})[0]);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

}  // namespace
}  // namespace adder
