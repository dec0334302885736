// One engine for many threads: nobody's bits depend on the others, nor on who is where.
#include "engine/shared_engine.h"

#include <atomic>
#include <thread>

#include "core/error.h"
#include "engine/engine_testing.h"
#include "engine/logit_editor.h"
#include "engine/scoring.h"
#include "engine/state_file.h"
#include "testing/compare.h"

namespace adder::testing {
namespace {

std::shared_ptr<SharedEngine> shared_engine(const std::string& name, int32_t slots) {
  EngineOptions options;
  options.slots = slots + 1;
  options.block = 64;
  return std::make_shared<SharedEngine>(golden_engine(name, options));
}

GenerationRequest sampled(uint64_t seed, int64_t prompt, int64_t max_tokens) {
  GenerationRequest r = greedy(random_ids(seed, prompt), max_tokens);
  r.sampling.temperature = 1;
  r.sampling.seed = seed;
  return r;
}

void finish(const std::shared_ptr<SharedEngine>& engine, SharedSequence& sequence) {
  SharedSequence* const one = &sequence;
  engine->finish(std::span(&one, 1), [] {});
}

class SharedOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, SharedOf, ::testing::ValuesIn(golden_families()));

TEST_P(SharedOf, ThreadsHaveTheBitsOfOneAlone) {
  constexpr uint64_t kThreads = 6, kEach = 4;
  const auto solo = golden_engine(GetParam());
  std::vector<std::vector<int32_t>> want;
  for (uint64_t i = 0; i < kThreads * kEach; ++i) {
    want.push_back(generate(*solo, sampled(i, 5 + 40 * static_cast<int64_t>(i % 4), 9)).tokens);
  }
  const auto engine = shared_engine(GetParam(), 3);  // fewer slots than threads
  std::vector<std::vector<int32_t>> got(want.size());
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        SharedRequest request;
        request.generation = sampled(i, 5 + 40 * static_cast<int64_t>(i % 4), 9);
        SharedSequence sequence(engine, std::move(request));
        finish(engine, sequence);
        got[i] = sequence.result().tokens;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(got, want);
}

TEST_P(SharedOf, MoreSequencesThanSlotsTakeTurns) {
  const auto solo = golden_engine(GetParam());
  const auto engine = shared_engine(GetParam(), 2);
  std::vector<std::unique_ptr<SharedSequence>> sequences;
  for (uint64_t i = 0; i < 7; ++i) {
    SharedRequest request;
    request.generation = sampled(i, 100, 6);
    request.keep_state = true;
    sequences.push_back(std::make_unique<SharedSequence>(engine, std::move(request)));
  }
  // One step each in turns: with 2 slots, each has left its slot before its next step.
  for (bool more = true; more;) {
    more = false;
    for (const auto& s : sequences) {
      SharedSequence* const one = s.get();
      engine->advance(std::span(&one, 1));
      more |= !s->done();
    }
  }
  for (uint64_t i = 0; i < 7; ++i) {
    GenerationRequest same = sampled(i, 100, 6);
    Conversation c;
    same.conversation = &c;
    EXPECT_EQ(sequences[i]->result().tokens, generate(*solo, same).tokens);
    const ParkedState& parked = *sequences[i]->history().state();
    EXPECT_EQ(parked.length(), c.length);
    EXPECT_EQ(parked.token_hash, c.token_hash);
    EXPECT_TRUE(same_bits(parked.logits, c.logits));
    const auto values = state_values(*solo, c.state);
    EXPECT_TRUE(std::ranges::equal(parked.state, std::as_bytes(std::span(values))));
  }
}

TEST_P(SharedOf, OthersStepWhileWorkPauses) {
  const auto solo = golden_engine(GetParam());
  const auto ids = random_ids(1, 500);
  const auto want = next_token_nll(*solo, ids);
  const auto want_tokens = generate(*solo, sampled(2, 80, 20)).tokens;
  const auto engine = shared_engine(GetParam(), 1);
  std::vector<double> got;
  int pauses = 0;
  engine->run(
      [&](Engine& e, const SharedEngine::Poll& pause) {
        got = next_token_nll(e, ids, [&](int64_t) { pause(); });
      },
      [&] {
        if (++pauses != 3) return;
        SharedRequest request;
        request.generation = sampled(2, 80, 20);
        SharedSequence sequence(engine, std::move(request));
        finish(engine, sequence);
        EXPECT_EQ(sequence.result().tokens, want_tokens);
      });
  EXPECT_EQ(pauses, 8);  // 499 tokens in blocks of 64
  EXPECT_EQ(got, want);
}

TEST(SharedEngine, WhatPollThrowsEndsTheWorkAndFreesItsSlot) {
  const auto engine = shared_engine("mamba1_hf", 1);
  const auto ids = random_ids(1, 500);
  for (int i = 0; i < 3; ++i) {
    int pauses = 0;
    EXPECT_THROW(engine->run(
                     [&](Engine& e, const SharedEngine::Poll& pause) {
                       next_token_nll(e, ids, [&](int64_t) { pause(); });
                     },
                     [&] {
                       if (++pauses == 2) fail(ErrorCode::kBusy, "enough");
                     }),
                 Error);
    EXPECT_EQ(pauses, 2);
  }
  engine->run([](Engine& e, const auto&) { EXPECT_EQ(e.states().free_slots(), 2); }, [] {});
}

TEST(SharedEngine, WhoLeavesGivesItsSlotBack) {
  const auto engine = shared_engine("mamba2_hf_groups4", 2);
  for (uint64_t i = 0; i < 6; ++i) {
    SharedRequest request;
    request.generation = sampled(i, 10, 100);
    SharedSequence sequence(engine, std::move(request));
    SharedSequence* const one = &sequence;
    engine->advance(std::span(&one, 1));
    EXPECT_FALSE(sequence.done());
  }
  SharedRequest request;
  request.generation = sampled(9, 10, 3);
  SharedSequence sequence(engine, std::move(request));
  finish(engine, sequence);
  EXPECT_EQ(sequence.result().tokens.size(), 3);
  engine->run([](Engine& e, const auto&) { EXPECT_EQ(e.states().free_slots(), 3); }, [] {});
}

TEST(SharedEngine, CancelEndsItAtTheNextStep) {
  const auto engine = shared_engine("mamba1_hf", 1);
  SharedRequest request;
  request.generation = sampled(1, 200, int64_t{1} << 30);
  request.keep_state = true;
  SharedSequence sequence(engine, std::move(request));
  SharedSequence* const one = &sequence;
  engine->advance(std::span(&one, 1));
  sequence.cancel();
  finish(engine, sequence);
  EXPECT_EQ(sequence.result().finish, FinishReason::kCancelled);
  EXPECT_EQ(sequence.history().length(), 64);  // one block of the prompt
  ASSERT_EQ(sequence.history().stretches().size(), 1);
  EXPECT_EQ(sequence.history().stretches()[0].tokens, 64);
}

class ForbidsAllAfterTwo final : public LogitEditor {
 public:
  std::unique_ptr<LogitEditor> clone() const override {
    return std::make_unique<ForbidsAllAfterTwo>(*this);
  }
  void edit(std::span<float> logits) override {
    if (accepted_ < 2) return;
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  }
  void accept(int32_t) override { ++accepted_; }

 private:
  int accepted_ = 0;
};

TEST(SharedEngine, AnErrorIsItsOwnersAlone) {
  const auto engine = shared_engine("mamba1_hf", 2);
  SharedRequest bad, good;
  bad.generation = sampled(1, 5, 9);
  bad.generation.editor = std::make_shared<ForbidsAllAfterTwo>();
  good.generation = sampled(2, 5, 9);
  SharedSequence failing(engine, std::move(bad)), other(engine, std::move(good));
  SharedSequence* const both[] = {&failing, &other};
  while (!failing.done() || !other.done()) engine->advance(both);
  EXPECT_TRUE(failing.failed());
  EXPECT_THROW(failing.result(), Error);
  EXPECT_FALSE(other.failed());
  EXPECT_EQ(other.result().tokens.size(), 9);
}

TEST(SharedEngine, RefusesWhatIsWrongBeforeAnythingRuns) {
  const auto engine = shared_engine("mamba1_hf", 1);
  const auto start = [&](GenerationRequest generation, ConversationHistory from = {}) {
    SharedRequest request;
    request.generation = std::move(generation);
    request.from = std::move(from);
    SharedSequence sequence(engine, std::move(request));
  };
  EXPECT_THROW(start(greedy({}, 1)), Error);
  EXPECT_THROW(start(greedy({-1}, 1)), Error);
  EXPECT_THROW(start(greedy({1}, -1)), Error);
  EXPECT_THROW(SharedEngine(golden_engine("mamba1_hf")), Error);  // one slot
  SharedRequest request;
  request.generation = greedy({1}, 1);
  SharedSequence sequence(engine, std::move(request));
  EXPECT_THROW(sequence.result(), Error);  // not done
  finish(engine, sequence);
  EXPECT_THROW(sequence.history(), Error);  // not asked for
}

TEST_P(SharedOf, ParkedConversationsAreTheSameFiles) {
  const auto engine = golden_engine(GetParam());
  Conversation c;
  GenerationRequest r = greedy(random_ids(3, 1500), 4);
  r.conversation = &c;
  const auto answer = generate(*engine, r).tokens;
  std::vector<int32_t> tokens = r.prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const std::string file = ::testing::TempDir() + "/shared_engine_test.state";
  save_conversation(*engine, c, file);
  const ParkedState parked = park(*engine, c, tokens);
  c = Conversation();
  const std::vector<std::byte> image = parked_image(*engine, parked);
  const ParkedState back = parse_parked(*engine, image, "image");
  EXPECT_EQ(back.forgotten, 1504 - 1024);
  EXPECT_EQ(back.length(), 1504);
  EXPECT_EQ(back.state, parked.state);
  EXPECT_EQ(back.token_hash, parked.token_hash);
  std::ifstream in(file, std::ios::binary);
  const std::string saved((std::istreambuf_iterator<char>(in)), {});
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(saved)), image));
  std::remove(file.c_str());
}

}  // namespace
}  // namespace adder::testing
