// A bad request is refused before anything ran, and costs nothing.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <limits>

#include "engine/engine_testing.h"
#include "engine/generator.h"
#include "engine/logit_editor.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

struct BadRequest {
  const char* name;
  const char* message;
  void (*spoil)(GenerationRequest&);
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const BadRequest kBadRequests[] = {
    {"NegativeId", "tokens: expected ids from 0 to 103, got -1 at position 1",
     [](GenerationRequest& r) {
       r.prompt = {1, -1};
     }},
    {"IdOutsideTheEmbedding", "tokens: expected ids from 0 to 103, got 104 at position 0",
     [](GenerationRequest& r) { r.prompt = {104}; }},
    {"HugeId", "got 2147483647 at position 2",
     [](GenerationRequest& r) {
       r.prompt = {1, 2, std::numeric_limits<int32_t>::max()};
     }},
    {"EmptyPrompt", "prompt: expected at least 1 token, got none",
     [](GenerationRequest& r) { r.prompt.clear(); }},
    {"NegativeMaxTokens", "max_tokens: expected 0 or more, got -1",
     [](GenerationRequest& r) { r.max_tokens = -1; }},
    {"NegativeLogprobs", "logprobs: expected 0 to 104, got -1",
     [](GenerationRequest& r) { r.top_logprobs = -1; }},
    {"TooManyLogprobs", "logprobs: expected 0 to 104, got 105",
     [](GenerationRequest& r) { r.top_logprobs = 105; }},
    {"StopWithoutTokenizer", "stop: the model has no tokenizer",
     [](GenerationRequest& r) { r.stop = {"."}; }},
    {"TemperatureNegative", "temp: expected a number from 0 to 100, got -0.1",
     [](GenerationRequest& r) { r.sampling.temperature = -0.1f; }},
    {"TemperatureNaN", "temp: expected",
     [](GenerationRequest& r) { r.sampling.temperature = kNaN; }},
    {"TemperatureInfinite", "temp: expected",
     [](GenerationRequest& r) { r.sampling.temperature = kInfinity; }},
    {"TopKNegative", "top-k: expected", [](GenerationRequest& r) { r.sampling.top_k = -1; }},
    {"TopPAboveOne", "top-p: expected a number from 0 to 1, got 1.5",
     [](GenerationRequest& r) { r.sampling.top_p = 1.5f; }},
    {"TopPNaN", "top-p: expected", [](GenerationRequest& r) { r.sampling.top_p = kNaN; }},
    {"MinPNegative", "min-p: expected", [](GenerationRequest& r) { r.sampling.min_p = -0.5f; }},
    {"MinPNaN", "min-p: expected", [](GenerationRequest& r) { r.sampling.min_p = kNaN; }},
    {"RepeatPenaltyZero", "repeat-penalty: expected",
     [](GenerationRequest& r) { r.sampling.repeat_penalty = 0; }},
    {"RepeatPenaltyNaN", "repeat-penalty: expected",
     [](GenerationRequest& r) { r.sampling.repeat_penalty = kNaN; }},
    {"RepeatLastNNegative", "repeat-last-n: expected",
     [](GenerationRequest& r) { r.sampling.repeat_last_n = -1; }},
};

class BadRequestTest : public ::testing::TestWithParam<BadRequest> {};
INSTANTIATE_TEST_SUITE_P(Generation, BadRequestTest, ::testing::ValuesIn(kBadRequests),
                         [](const auto& test) { return std::string(test.param.name); });

// The good one stands first, so it would be the one to have run, or to have taken a slot.
TEST_P(BadRequestTest, IsRefusedBeforeAnythingRan) {
  static const auto engine = golden_engine("mamba1_hf", {.slots = 4});
  Conversation old;
  GenerationRequest begin = greedy({1, 2, 3}, 2);
  begin.conversation = &old;
  generate(*engine, begin);
  const auto state = state_values(*engine, old.state);
  ASSERT_EQ(engine->states().free_slots(), 3);

  bool ran = false;
  Conversation fresh, bad_fresh;
  std::vector<GenerationRequest> requests(3, greedy({4, 5}, 3));
  for (GenerationRequest& r : requests) r.on_prefill = [&](int64_t) { ran = true; };
  requests[0].conversation = &fresh;
  requests[1].conversation = &old;
  requests[2].conversation = &bad_fresh;
  GetParam().spoil(requests[2]);
  expect_bad_input([&] { generate(*engine, requests); }, GetParam().message);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(fresh.state) << "a slot was taken";
  EXPECT_FALSE(bad_fresh.state) << "a slot was taken";
  EXPECT_EQ(engine->states().free_slots(), 3);
  EXPECT_EQ(old.length, 5);
  EXPECT_TRUE(same_bits(state_values(*engine, old.state), state));
}

TEST(GenerationErrors, MoreSequencesThanSlots) {
  const auto engine = golden_engine("mamba2_hf", {.slots = 2});
  const std::vector<GenerationRequest> requests(3, greedy({4, 5}, 3));
  expect_bad_input([&] { generate(*engine, requests); }, "expected at most 2 new sequences, got 3");
  EXPECT_EQ(engine->states().free_slots(), 2);
  EXPECT_EQ(generate(*engine, std::span(requests).first(2)).size(), 2u);
  EXPECT_EQ(engine->states().free_slots(), 2);
  EXPECT_TRUE(generate(*engine, std::span(requests).first(0)).empty());
}

TEST(GenerationErrors, OneConversationInTwoRequests) {
  const auto engine = golden_engine("mamba2_hf", {.slots = 2});
  Conversation c;
  std::vector<GenerationRequest> requests(2, greedy({4, 5}, 3));
  for (GenerationRequest& r : requests) r.conversation = &c;
  expect_bad_input([&] { generate(*engine, requests); }, "conversation: expected a different one");
  EXPECT_FALSE(c.state);
  EXPECT_EQ(engine->states().free_slots(), 2);
}

// Forty requests on two slots, good and bad ones, leave as many slots as there were.
TEST(GenerationErrors, NoSlotIsLostInTheLongRun) {
  const auto engine = golden_engine("mamba1_hf", {.block = 16, .slots = 2});
  const auto want = generate(*engine, greedy(random_ids(1, 40), 8)).tokens;
  for (int i = 0; i < 40; ++i) {
    std::vector<GenerationRequest> requests(2, greedy(random_ids(1, 40), 8));
    if (i % 3 == 0) requests[1].prompt.push_back(-5);
    poison_free_slots(*engine);
    try {
      for (const auto& result : generate(*engine, requests)) EXPECT_EQ(result.tokens, want);
    } catch (const Error&) {
      EXPECT_EQ(i % 3, 0);
    }
    ASSERT_EQ(engine->states().free_slots(), 2);
  }
}

// The caller's own exception passes through and leaves no slot behind.
TEST(GenerationErrors, ExceptionFromACallback) {
  const auto engine = golden_engine("mamba1_hf", {.block = 16, .slots = 2});
  GenerationRequest request = greedy(random_ids(1, 40), 8);
  request.on_prefill = [](int64_t done) {
    if (done > 16) throw std::runtime_error("the client is gone");
  };
  EXPECT_THROW(generate(*engine, request), std::runtime_error);
  EXPECT_EQ(engine->states().free_slots(), 2);
  request.on_prefill = nullptr;
  EXPECT_EQ(generate(*engine, request).tokens.size(), 8u);
}

// Ids to repeat that the vocabulary does not have end their own sequence only.
TEST(GenerationErrors, ForcedIdsOutsideTheVocabulary) {
  const auto engine = golden_engine("mamba1_hf", {.slots = 2});
  const auto limit = static_cast<int32_t>(engine->vocab_limit());
  for (const int32_t id : {-1, limit, std::numeric_limits<int32_t>::max()}) {
    GenerationRequest request = greedy({4, 5}, 3);
    request.editor = make_forced_editor({6, id, 7});
    expect_bad_input(
        [&] { generate(*engine, request); },
        fmt::format("forced tokens[1]: expected ids from 0 to {}, got {}", limit - 1, id));
    EXPECT_EQ(engine->states().free_slots(), 2);
  }
  GenerationRequest request = greedy({4, 5}, 3);
  request.editor = make_forced_editor({6, limit - 1, 7});
  EXPECT_EQ(generate(*engine, request).tokens, (std::vector<int32_t>{6, limit - 1, 7}));
}

TEST(GenerationErrors, EngineOptionsOutOfRange) {
  expect_bad_input([] { golden_engine("mamba1_hf", {.block = -1}); }, "block: expected 1 to 65536");
  expect_bad_input([] { golden_engine("mamba1_hf", {.block = 65537}); }, "got 65537");
  expect_bad_input([] { golden_engine("mamba1_hf", {.slots = 0}); }, "slots: expected at least 1");
  expect_bad_input([] { golden_engine("mamba1_hf", {.device = "gpu9"}); }, "got 'gpu9'");
}

}  // namespace
}  // namespace adder
