// Packed and shared, and yet the bits of one text at a time.
#include "engine/continuation_scoring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/engine_testing.h"
#include "engine/scoring.h"

namespace adder {
namespace {

using namespace adder::testing;

ContinuationRequest request(const std::vector<int32_t>& context, uint64_t seed, int64_t count) {
  ContinuationRequest r{context, static_cast<int64_t>(context.size())};
  const auto more = random_ids(seed, count);
  r.tokens.insert(r.tokens.end(), more.begin(), more.end());
  return r;
}

std::vector<ContinuationScore> one_at_a_time(Engine& engine,
                                             std::span<const ContinuationRequest> requests) {
  std::vector<ContinuationScore> scores;
  for (const ContinuationRequest& r : requests) {
    std::vector<int32_t> best;
    const std::vector<double> nll = next_token_nll(engine, r.tokens, nullptr, &best);
    const auto skip = static_cast<ptrdiff_t>(r.context - 1);
    scores.push_back({{nll.begin() + skip, nll.end()}, {best.begin() + skip, best.end()}});
  }
  return scores;
}

void expect_same(std::span<const ContinuationScore> scores,
                 std::span<const ContinuationScore> wanted) {
  ASSERT_EQ(scores.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(scores[i].nll, wanted[i].nll) << i;
    EXPECT_EQ(scores[i].best, wanted[i].best) << i;
  }
}

class ContinuationScoring : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Family, ContinuationScoring, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(ContinuationScoring, TheBitsOfOneAtATime) {
  std::vector<ContinuationRequest> requests;
  for (const int64_t length : {1, 40, 65, 300}) {
    const auto context = random_ids(static_cast<uint64_t>(length), length);
    // Answers of a question; the third is longer than a block.
    for (const int64_t count : {1, 5, 270, 70}) {
      requests.push_back(request(context, requests.size(), count));
    }
    // Questions without a common context.
    for (const int64_t count : {1, 30}) {
      requests.push_back(
          request(random_ids(requests.size() + 100, length), requests.size(), count));
    }
  }
  for (const int64_t block : {20, 64, 100, 256}) {
    const auto alone = golden_engine(GetParam(), {.threads = 1, .block = block});
    const auto wanted = one_at_a_time(*alone, requests);
    for (const int32_t slots : {1, 2, 5}) {
      SCOPED_TRACE(fmt::format("block {}, slots {}", block, slots));
      const auto engine = golden_engine(
          GetParam(), {.threads = 1, .block = block, .slots = slots, .logit_rows = 3});
      poison_free_slots(*engine);
      int64_t least_free = slots;
      const auto scores = score_continuations(*engine, requests, [&] {
        least_free = std::min<int64_t>(least_free, engine->states().free_slots());
      });
      EXPECT_GE(least_free, slots - 1);
      EXPECT_EQ(engine->states().free_slots(), slots);
      expect_same(scores, wanted);
    }
  }
}

TEST_P(ContinuationScoring, OthersMayUseTheEngineMeanwhile) {
  const auto engine = golden_engine(GetParam(), {.block = 64, .slots = 3});
  std::vector<ContinuationRequest> requests;
  for (uint64_t i = 0; i < 5; ++i)
    requests.push_back(request(random_ids(1, 150), 10 + i, 20 * static_cast<int64_t>(i) + 1));
  const auto scores = score_continuations(*engine, requests, [&] {
    poison_free_slots(*engine);
    next_token_nll(*engine, random_ids(7, 90));
  });
  expect_same(scores, one_at_a_time(*engine, requests));
}

TEST(ContinuationScoring, StepsAreShared) {
  const auto steps = [](Engine& engine, std::span<const ContinuationRequest> requests) {
    int count = 0;
    score_continuations(engine, requests, [&] { ++count; });
    return count;
  };
  const auto engine = golden_engine("mamba1_hf", {.block = 64, .slots = 9});
  std::vector<ContinuationRequest> answers, questions;
  for (uint64_t i = 0; i < 4; ++i) {
    answers.push_back(request(random_ids(1, 150), i, 5));
    questions.push_back(request(random_ids(i + 10, 8), i, 5));
  }
  EXPECT_EQ(steps(*engine, answers), 3 + 1);  // the context in three blocks, the answers in one
  EXPECT_EQ(steps(*engine, questions), 1);
  questions.insert(questions.end(), answers.begin(), answers.end());
  EXPECT_EQ(steps(*engine, questions), 1 + 4);
  const auto small = golden_engine("mamba1_hf", {.block = 64, .slots = 3});
  EXPECT_EQ(steps(*small, answers), 3 + 2);  // two beside the context
  EXPECT_EQ(steps(*small, std::span(questions).first(4)), 2);
}

TEST(ContinuationScoring, BadRequests) {
  const auto engine = golden_engine("mamba1_hf", {.slots = 2});
  const auto refused = [&](ContinuationRequest bad, const char* message) {
    const ContinuationRequest good{{1, 2, 3}, 1};
    expect_bad_input(
        [&] {
          const std::vector<ContinuationRequest> both = {good, std::move(bad)};
          score_continuations(*engine, both);
        },
        message);
    EXPECT_EQ(engine->states().free_slots(), 2);
  };
  refused({{1, 2}, 2}, "requests[1]: expected 1 to 1 tokens of context");
  refused({{1, 2}, 0}, "tokens of context before at least 1 more, got 0");
  refused({{}, 1}, "requests[1]: expected");
  refused({{1, -2, 3}, 1}, "got -2 at position 1");
  refused({{1, 2, static_cast<int32_t>(engine->config().vocab_rows)}, 1}, "at position 2");
  EXPECT_TRUE(score_continuations(*engine, {}).empty());
}

}  // namespace
}  // namespace adder
