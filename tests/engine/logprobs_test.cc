#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/engine_testing.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

TEST(Logprobs, SumToOneAndAreInOrder) {
  const auto engine = golden_engine("mamba1_state_spaces_bin");
  const auto limit = static_cast<int>(engine->vocab_limit());
  ASSERT_LT(limit, engine->config().vocab_rows);  // padding must not take part
  GenerationRequest request = greedy(random_ids(1, 10), 6);
  request.want_logprobs = true;
  request.top_logprobs = limit;
  const auto result = generate(*engine, request);
  ASSERT_EQ(result.logprobs.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const TokenLogprobs& p = result.logprobs[i];
    EXPECT_EQ(p.chosen.token, result.tokens[i]);
    ASSERT_EQ(p.top.size(), static_cast<size_t>(limit));
    double sum = 0;
    for (size_t k = 0; k < p.top.size(); ++k) {
      sum += std::exp(static_cast<double>(p.top[k].logprob));
      EXPECT_LE(p.top[k].logprob, p.top[k == 0 ? 0 : k - 1].logprob);
    }
    // Each of the 101 float32 logprobs, around -5, is rounded by up to 2^-23 * 4.
    EXPECT_NEAR(sum, 1.0, 1e-6);
    EXPECT_EQ(p.top[0].token, p.chosen.token);
    EXPECT_EQ(p.top[0].logprob, p.chosen.logprob);
  }
}

TEST(Logprobs, AreBeforeTemperatureAndFilters) {
  const auto engine = golden_engine("mamba2_hf");
  GenerationRequest request = greedy(random_ids(1, 10), 1);
  request.want_logprobs = true;
  request.top_logprobs = 5;
  const auto plain = generate(*engine, request).logprobs[0];
  request.sampling.temperature = 3;
  request.sampling.top_k = 2;
  request.sampling.repeat_penalty = 2;
  const auto filtered = generate(*engine, request).logprobs[0];
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_EQ(filtered.top[k].token, plain.top[k].token);
    EXPECT_EQ(filtered.top[k].logprob, plain.top[k].logprob);
  }
}

TEST(Logprobs, ComeOnlyWhenAskedFor) {
  const auto engine = golden_engine("mamba2_hf");
  GenerationRequest request = greedy({1, 2}, 3);
  EXPECT_TRUE(generate(*engine, request).logprobs.empty());
  request.want_logprobs = true;
  const auto result = generate(*engine, request);
  ASSERT_EQ(result.logprobs.size(), 3u);
  EXPECT_TRUE(result.logprobs[0].top.empty());
}

TEST(Logprobs, LowestIdFirstAmongEquals) {
  const std::vector<float> logits = {1, 3, -2, 3, 3, 1};
  const TokenLogprobs p = token_logprobs(logits, 5, 5);
  std::vector<int32_t> order;
  for (const TokenLogprob& t : p.top) order.push_back(t.token);
  EXPECT_EQ(order, (std::vector<int32_t>{1, 3, 4, 0, 5}));
  EXPECT_EQ(p.chosen.token, 5);
  EXPECT_EQ(p.chosen.logprob, p.top[4].logprob);
  EXPECT_EQ(token_logprobs(logits, 0, 100).top.size(), 6u);
}

TEST(Logprobs, LogSumExpNeitherOverflowsNorHidesNaN) {
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{-1000, -1000}), -1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{-3e38f, 3e38f}), static_cast<double>(3e38f));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{2, -kInfinity}), 2.0);
  for (const std::vector<float>& bad : std::vector<std::vector<float>>{
           {1, kNaN, 2}, {kNaN, 1}, {1, kNaN}, {1, kInfinity}, {-kInfinity, -kInfinity}, {}}) {
    EXPECT_TRUE(std::isnan(log_sum_exp(bad)));
  }
}

}  // namespace
}  // namespace adder
