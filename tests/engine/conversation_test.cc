// Conversations: continued, forked, cancelled.
#include <gtest/gtest.h>

#include <atomic>

#include "core/random.h"
#include "engine/engine_testing.h"
#include "engine/generator.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

GenerationRequest on(Conversation& c, GenerationRequest request) {
  request.conversation = &c;
  return request;
}

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0;
  for (const int32_t id : tokens) hash = extend_token_hash(hash, id);
  return hash;
}

std::vector<int32_t> joined(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class ConversationTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine_ = golden_engine(GetParam(), {.block = 64, .slots = 8});
};
INSTANTIATE_TEST_SUITE_P(Family, ConversationTest, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

// The state is that of prompt and answer, whichever way the turns were cut: the second turn
// continues as one long prompt would.
TEST_P(ConversationTest, TurnsEqualOneLongPrompt) {
  const auto a = random_ids(1, 30), b = random_ids(2, 40);
  Conversation c;
  const auto first = generate(*engine_, on(c, greedy(a, 7)));
  EXPECT_EQ(c.length, 37);
  const auto second = generate(*engine_, on(c, greedy(b, 9)));
  EXPECT_EQ(second.cached_tokens, 37);
  EXPECT_EQ(second.prompt_tokens, 77);
  const auto all = joined({a, first.tokens, b});
  Conversation whole;
  EXPECT_EQ(generate(*engine_, on(whole, greedy(all, 9))).tokens, second.tokens);
  EXPECT_EQ(c.length, 86);
  EXPECT_EQ(c.recent, joined({all, second.tokens}));
  EXPECT_EQ(c.token_hash, hash_of(c.recent));
  EXPECT_EQ(whole.token_hash, c.token_hash);
  EXPECT_TRUE(close(state_values(*engine_, c.state), state_values(*engine_, whole.state), kReplay));
}

// 12 tokens at once, or 5 and the rest without new text: the same steps, so the same bits. Seeds
// depend on positions and the penalty on what was said, so sampling goes on as if uninterrupted.
TEST_P(ConversationTest, ContinuingWithoutTextIsTheUninterruptedAnswer) {
  for (const float temperature : {0.0f, 1.3f}) {
    GenerationRequest request = greedy(random_ids(3, 50), 12);
    request.sampling.temperature = temperature;
    request.sampling.repeat_penalty = 1.2f;
    request.sampling.seed = 9;
    Conversation whole, cut;
    const auto want = generate(*engine_, on(whole, request));
    request.max_tokens = 5;
    const auto first = generate(*engine_, on(cut, request));
    request.prompt.clear();
    request.max_tokens = 7;
    const auto second = generate(*engine_, on(cut, request));
    EXPECT_EQ(joined({first.tokens, second.tokens}), want.tokens);
    EXPECT_TRUE(same_bits(state_values(*engine_, cut.state), state_values(*engine_, whole.state)));
    EXPECT_TRUE(same_bits(cut.logits, whole.logits));
    EXPECT_EQ(cut.recent, whole.recent);
  }
}

TEST_P(ConversationTest, AdvancingACopyLeavesTheOriginalAlone) {
  Conversation original;
  generate(*engine_, on(original, greedy(random_ids(4, 70), 3)));
  const auto state = state_values(*engine_, original.state);
  const auto logits = original.logits;
  Conversation copy = original;
  EXPECT_EQ(copy.state.slot(), original.state.slot());
  EXPECT_EQ(engine_->states().free_slots(), 7);
  generate(*engine_, on(copy, greedy(random_ids(5, 90), 10)));
  EXPECT_NE(copy.state.slot(), original.state.slot());
  EXPECT_EQ(engine_->states().free_slots(), 6);
  EXPECT_TRUE(same_bits(state_values(*engine_, original.state), state));
  EXPECT_TRUE(same_bits(original.logits, logits));
  EXPECT_EQ(original.length, 73);
  // And the other way round.
  const auto copied = state_values(*engine_, copy.state);
  generate(*engine_, on(original, greedy({1, 2, 3}, 4)));
  EXPECT_TRUE(same_bits(state_values(*engine_, copy.state), copied));
}

TEST_P(ConversationTest, ThreeForksOfOnePrefillEqualSeparateRuns) {
  const auto prompt = random_ids(6, 130);
  const auto sampled = [&](std::vector<int32_t> text, uint64_t seed) {
    GenerationRequest r = greedy(std::move(text), 20);
    r.sampling.temperature = 1;
    r.sampling.seed = seed;
    return r;
  };
  std::vector<std::vector<float>> want_states;
  std::vector<std::vector<int32_t>> want;
  for (uint64_t i = 0; i < 3; ++i) {
    Conversation c;
    want.push_back(generate(*engine_, on(c, sampled(prompt, i))).tokens);
    want_states.push_back(state_values(*engine_, c.state));
  }
  EXPECT_NE(want[0], want[1]);

  Conversation prefix;
  generate(*engine_, on(prefix, greedy(prompt, 0)));
  std::vector<Conversation> forks(3, prefix);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(on(forks[i], sampled({}, i)));
  poison_free_slots(*engine_);
  const auto results = generate(*engine_, requests);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].tokens, want[i]);
    EXPECT_EQ(results[i].cached_tokens, 130);
    EXPECT_TRUE(same_bits(state_values(*engine_, forks[i].state), want_states[i]));
  }
  EXPECT_EQ(engine_->states().free_slots(), 4);
}

// With 8 slots, 8 forks need 7 more when the prefix itself is let go, and 8 when it is kept.
TEST_P(ConversationTest, ForksTakeEverySlotButNotOneMore) {
  Conversation prefix;
  generate(*engine_, on(prefix, greedy({5, 6, 7}, 0)));
  std::vector<Conversation> forks(8, prefix);
  std::vector<GenerationRequest> requests;
  for (Conversation& fork : forks) requests.push_back(on(fork, greedy({1}, 3)));
  expect_bad_input([&] { generate(*engine_, requests); },
                   "expected at most 7 new sequences, got 8");
  EXPECT_EQ(engine_->states().free_slots(), 7);
  EXPECT_EQ(forks[0].length, 3);
  prefix = {};
  const auto results = generate(*engine_, requests);
  for (const auto& result : results) EXPECT_EQ(result.tokens, results[0].tokens);
  EXPECT_EQ(engine_->states().free_slots(), 0);
}

TEST_P(ConversationTest, CancelledInThePrompt) {
  std::atomic<bool> cancel = false;
  Conversation c;
  GenerationRequest request = on(c, greedy(random_ids(7, 200), 5));
  request.cancel = &cancel;
  request.on_prefill = [&](int64_t done) { cancel = done >= 128; };
  const auto result = generate(*engine_, request);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_TRUE(result.tokens.empty());
  // What was fed is a whole conversation; the rest of the prompt can follow.
  EXPECT_EQ(c.length, 128);
  EXPECT_EQ(c.recent, random_ids(7, 128));
  EXPECT_EQ(c.token_hash, hash_of(c.recent));
  EXPECT_EQ(engine_->states().free_slots(), 7);
  const auto rest = std::vector<int32_t>(request.prompt.begin() + 128, request.prompt.end());
  Conversation whole;
  const auto want = generate(*engine_, on(whole, greedy(random_ids(7, 200), 5)));
  EXPECT_EQ(generate(*engine_, on(c, greedy(rest, 5))).tokens, want.tokens);
  EXPECT_TRUE(same_bits(state_values(*engine_, c.state), state_values(*engine_, whole.state)));
}

TEST_P(ConversationTest, CancelledInTheAnswer) {
  std::atomic<bool> cancel = false;
  Conversation c, other;
  std::vector<GenerationRequest> requests = {on(c, greedy(random_ids(8, 20), 50)),
                                             on(other, greedy(random_ids(9, 100), 50))};
  requests[0].cancel = &cancel;
  // The neighbour's prompt ends while the first is in the middle of its answer.
  requests[1].on_prefill = [&](int64_t done) { cancel = done == 100; };
  const auto results = generate(*engine_, requests);
  EXPECT_EQ(results[0].finish, FinishReason::kCancelled);
  const size_t said = results[0].tokens.size();
  EXPECT_GE(said, 2u);
  EXPECT_LT(said, 10u);
  EXPECT_EQ(c.length, 20 + static_cast<int64_t>(said));  // all of them are in the state
  EXPECT_EQ(c.recent, joined({random_ids(8, 20), results[0].tokens}));
  EXPECT_EQ(results[1].finish, FinishReason::kLength);
  EXPECT_EQ(results[1].tokens.size(), 50u);
  Conversation whole;
  const auto want = generate(*engine_, on(whole, greedy(random_ids(8, 20), c.length - 10)));
  const auto more = generate(*engine_, on(c, greedy({}, 10)));
  EXPECT_EQ(joined({results[0].tokens, more.tokens}), want.tokens);
}

TEST_P(ConversationTest, CancelledBeforeItBegan) {
  const std::atomic<bool> cancel = true;
  GenerationRequest request = greedy(random_ids(10, 20), 5);
  request.cancel = &cancel;
  auto result = generate(*engine_, request);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(engine_->states().free_slots(), 8);

  Conversation c;
  generate(*engine_, on(c, greedy({1, 2}, 0)));
  const auto state = state_values(*engine_, c.state);
  const auto logits = c.logits;
  request.prompt.clear();
  result = generate(*engine_, on(c, request));
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_TRUE(same_bits(state_values(*engine_, c.state), state));
  EXPECT_TRUE(same_bits(c.logits, logits));
}

// A stop string ends the text, but its tokens were said and the conversation holds them.
TEST(Conversation, StopStringLeavesItsTokensInTheState) {
  const auto engine = demo_engine({.slots = 2});
  const auto prompt = engine->tokenizer().encode("It was a fine morning, and ");
  const auto answer = generate(*engine, greedy(prompt, 30));
  GenerationRequest request = greedy(prompt, 30);
  request.stop = {answer.text.substr(4, 5)};
  Conversation c;
  const auto stopped = generate(*engine, on(c, request));
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(c.length, static_cast<int64_t>(prompt.size() + stopped.tokens.size()));
  const auto more = generate(*engine, on(c, greedy({}, 5)));
  auto want = answer.tokens;
  want.resize(stopped.tokens.size() + 5);
  EXPECT_EQ(joined({stopped.tokens, more.tokens}), want);
}

}  // namespace
}  // namespace adder
