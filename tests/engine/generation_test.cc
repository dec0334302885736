// Tokens: against the oracle, and that nothing but the request decides them.
#include "engine/generator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/engine_testing.h"
#include "testing/compare.h"
#include "testing/targets.h"

namespace adder {
namespace {

namespace fs = std::filesystem;
using namespace adder::testing;

std::vector<std::string> all_golden() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden_path(""))) {
    if (fs::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What a request leaves behind, to the bit.
struct Outcome {
  GenerationResult result;
  Conversation conversation;
  std::vector<float> state;
};

Outcome run_one(Engine& engine, GenerationRequest request) {
  Outcome out;
  request.conversation = &out.conversation;
  out.result = generate(engine, request);
  out.state = state_values(engine, out.conversation.state);
  return out;
}

void expect_same_bits(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.result.tokens, want.result.tokens);
  EXPECT_EQ(got.conversation.length, want.conversation.length);
  EXPECT_EQ(got.conversation.token_hash, want.conversation.token_hash);
  EXPECT_EQ(got.conversation.recent, want.conversation.recent);
  EXPECT_TRUE(same_bits(got.conversation.logits, want.conversation.logits));
  EXPECT_TRUE(same_bits(got.state, want.state));
  ASSERT_EQ(got.result.logprobs.size(), want.result.logprobs.size());
  for (size_t i = 0; i < want.result.logprobs.size(); ++i) {
    const TokenLogprobs &g = got.result.logprobs[i], &w = want.result.logprobs[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(g.chosen.logprob), std::bit_cast<uint32_t>(w.chosen.logprob));
    ASSERT_EQ(g.top.size(), w.top.size());
    for (size_t k = 0; k < w.top.size(); ++k) {
      EXPECT_EQ(g.top[k].token, w.top[k].token);
      EXPECT_EQ(std::bit_cast<uint32_t>(g.top[k].logprob),
                std::bit_cast<uint32_t>(w.top[k].logprob));
    }
  }
}

class EveryGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryGolden, GreedyTokensAreTheOracles) {
  const auto expected = golden_json(GetParam());
  const auto engine = golden_engine(GetParam());
  const auto want = ids_of(expected["greedy"]);
  const GenerationResult result =
      generate(*engine, greedy(ids_of(expected["prompt"]), static_cast<int64_t>(want.size())));
  EXPECT_EQ(result.tokens, want);
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.prompt_tokens, 29);
  EXPECT_EQ(result.cached_tokens, 0);
  EXPECT_EQ(result.text, "");
}

INSTANTIATE_TEST_SUITE_P(Dialects, EveryGolden, ::testing::ValuesIn(all_golden()),
                         [](const auto& test) { return test.param; });

class Family : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Generation, Family, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

// 321 tokens: five blocks of 64 and one token, one of 256 and a remainder.
TEST_P(Family, BlockSizeDecidesNothing) {
  const GenerationRequest request = greedy(random_ids(1, 321), 24);
  EngineOptions options;
  options.block = 1024;
  const auto whole_engine = golden_engine(GetParam(), options);
  const Outcome whole = run_one(*whole_engine, request);
  for (const int64_t block : {1, 3, 7, 64, 100, 128, 256, 320}) {
    SCOPED_TRACE(block);
    options.block = block;
    const auto engine = golden_engine(GetParam(), options);
    const Outcome got = run_one(*engine, request);
    if (block % kSsdChunkAlign == 0) {
      expect_same_bits(got, whole);
    } else {
      EXPECT_EQ(got.result.tokens, whole.result.tokens);
      EXPECT_TRUE(close(got.state, whole.state, kReplay));
      EXPECT_TRUE(close(got.conversation.logits, whole.conversation.logits, kReplayLogits));
    }
  }
}

TEST_P(Family, PromptFedTokenByTokenThroughAConversation) {
  const auto prompt = random_ids(2, 70);
  const auto engine = golden_engine(GetParam(), {.slots = 2});
  const Outcome whole = run_one(*engine, greedy(prompt, 24));
  Conversation c;
  for (const int32_t id : prompt) {
    GenerationRequest step = greedy({id}, 0);
    step.conversation = &c;
    EXPECT_TRUE(generate(*engine, step).tokens.empty());
  }
  GenerationRequest rest = greedy({}, 24);
  rest.conversation = &c;
  const GenerationResult result = generate(*engine, rest);
  EXPECT_EQ(result.tokens, whole.result.tokens);
  EXPECT_EQ(result.cached_tokens, 70);
  EXPECT_EQ(c.length, whole.conversation.length);
  EXPECT_EQ(c.token_hash, whole.conversation.token_hash);
  EXPECT_EQ(c.recent, whole.conversation.recent);
  EXPECT_TRUE(close(state_values(*engine, c.state), whole.state, kReplay));
}

// Prompts on both sides of the block, of the chunk of 64 and of the convolution's window.
TEST_P(Family, CompanyAndDirtySlotsChangeNoBit) {
  const std::vector<int64_t> lengths = {1, 2, 3, 63, 64, 65, 130, 200};
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < lengths.size(); ++i) {
    GenerationRequest r = greedy(random_ids(10 + i, lengths[i]), 5 + 3 * static_cast<int64_t>(i));
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 1.2f;
    r.sampling.repeat_penalty = i % 3 == 0 ? 1.3f : 1.0f;
    r.sampling.seed = i;
    r.want_logprobs = true;
    r.top_logprobs = 3;
    requests.push_back(r);
  }
  std::vector<Outcome> alone;
  for (const GenerationRequest& r : requests) {
    const auto engine = golden_engine(GetParam(), {.block = 64, .slots = 1});
    alone.push_back(run_one(*engine, r));
  }
  const auto engine = golden_engine(GetParam(), {.block = 64, .slots = 8});
  for (const bool dirty : {false, true}) {
    SCOPED_TRACE(dirty);
    if (dirty) poison_free_slots(*engine);
    std::vector<Conversation> conversations(requests.size());
    std::vector<GenerationRequest> together = requests;
    for (size_t i = 0; i < together.size(); ++i) together[i].conversation = &conversations[i];
    std::vector<GenerationResult> results = generate(*engine, together);
    EXPECT_EQ(engine->states().free_slots(), 0);
    for (size_t i = 0; i < together.size(); ++i) {
      SCOPED_TRACE(lengths[i]);
      const auto state = state_values(*engine, conversations[i].state);
      expect_same_bits({std::move(results[i]), std::move(conversations[i]), state}, alone[i]);
    }
  }
  EXPECT_EQ(engine->states().free_slots(), 8);
}

TEST_P(Family, ThreadsAndRepetitionChangeNoBit) {
  GenerationRequest request = greedy(random_ids(3, 150), 24);
  request.sampling.temperature = 0.9f;
  request.want_logprobs = true;
  const auto engine = golden_engine(GetParam(), {.threads = 1, .slots = 3});
  const Outcome one = run_one(*engine, request);
  expect_same_bits(run_one(*engine, request), one);
  for (const int threads : {2, 3}) {
    SCOPED_TRACE(threads);
    const auto other = golden_engine(GetParam(), {.threads = threads});
    expect_same_bits(run_one(*other, request), one);
  }
}

TEST_P(Family, EveryInstructionSetAndBackendChoosesTheSameTokens) {
  const auto expected = golden_json(GetParam());
  const auto want = ids_of(expected["greedy"]);
  for (const Target& target : all_targets()) {
    SCOPED_TRACE(target.backend + " " + target.isa);
    if (!target.isa.empty()) setenv("ADDER_FORCE_ISA", target.isa.c_str(), 1);
    const auto engine = golden_engine(GetParam(), {.device = target.backend});
    unsetenv("ADDER_FORCE_ISA");
    EXPECT_EQ(generate(*engine, greedy(ids_of(expected["prompt"]), 32)).tokens, want);
  }
}

TEST_P(Family, SeedsDecideSampledTokens) {
  const auto engine = golden_engine(GetParam());
  GenerationRequest request = greedy(random_ids(4, 20), 40);
  request.sampling.temperature = 1.5f;
  request.sampling.top_p = 1.0f;
  std::set<std::vector<int32_t>> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    request.sampling.seed = seed;
    const auto tokens = generate(*engine, request).tokens;
    EXPECT_EQ(generate(*engine, request).tokens, tokens);
    seen.insert(tokens);
  }
  EXPECT_EQ(seen.size(), 8u);
  request.sampling.seed = 3;
  request.sampling.top_k = 1;  // leaves only the most probable token
  GenerationRequest best = request;
  best.sampling.temperature = 0;
  EXPECT_EQ(generate(*engine, request).tokens, generate(*engine, best).tokens);
}

// A penalty of 100 leaves a token that was seen without a chance.
TEST_P(Family, RepeatPenaltyLooksAtPromptAndAnswer) {
  const auto engine = golden_engine(GetParam());
  GenerationRequest request = greedy(random_ids(5, 30), 20);
  request.sampling.repeat_penalty = 100;
  std::set<int32_t> seen(request.prompt.begin(), request.prompt.end());
  for (const int32_t id : generate(*engine, request).tokens) EXPECT_TRUE(seen.insert(id).second);
}

TEST_P(Family, RepeatPenaltyReachesExactlyAsFarAsAsked) {
  const auto engine = golden_engine(GetParam());
  GenerationRequest request = greedy({}, 1);
  int32_t favourite = 0;
  auto last = request.prompt.rend();
  for (uint64_t seed = 100; last == request.prompt.rend(); ++seed) {
    ASSERT_LT(seed, 300u) << "no prompt holds its own continuation";
    request.prompt = random_ids(seed, 30);
    favourite = generate(*engine, request).tokens[0];
    last = std::find(request.prompt.rbegin(), request.prompt.rend(), favourite);
  }
  const auto distance = static_cast<int32_t>(last - request.prompt.rbegin());
  request.sampling.repeat_penalty = 100;
  request.sampling.repeat_last_n = distance;
  EXPECT_EQ(generate(*engine, request).tokens[0], favourite);
  request.sampling.repeat_last_n = distance + 1;
  EXPECT_NE(generate(*engine, request).tokens[0], favourite);
}

TEST(GenerationVocabulary, PaddingIsNeverProduced) {
  const auto engine = golden_engine("mamba1_state_spaces_bin");  // 101 ids in 104 rows
  GenerationRequest request = greedy({1}, 3000);
  request.sampling.temperature = 100;
  request.sampling.top_p = 1;
  const auto tokens = generate(*engine, request).tokens;
  EXPECT_EQ(*std::max_element(tokens.begin(), tokens.end()), 100);
}

TEST_P(Family, MaxTokensZeroProcessesThePromptOnly) {
  const auto engine = golden_engine(GetParam(), {.block = 8});
  const auto expected = golden_json(GetParam());
  GenerationRequest request = greedy(ids_of(expected["prompt"]), 0);
  std::vector<int64_t> progress;
  request.on_prefill = [&](int64_t done) { progress.push_back(done); };
  const GenerationResult fresh = generate(*engine, request);
  EXPECT_TRUE(fresh.tokens.empty());
  EXPECT_EQ(fresh.finish, FinishReason::kLength);
  EXPECT_EQ(progress, (std::vector<int64_t>{8, 16, 24, 29}));
  EXPECT_EQ(engine->states().free_slots(), 1);

  const Outcome kept = run_one(*engine, request);
  EXPECT_EQ(kept.conversation.length, 29);
  EXPECT_EQ(kept.conversation.recent, request.prompt);
  const auto want = expected["logits_last"].get<std::vector<double>>();
  EXPECT_TRUE(close(kept.conversation.logits, want, Tolerance{2e-5, 2e-4}));  // as in golden_test
}

}  // namespace
}  // namespace adder
