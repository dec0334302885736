// The decode loop against the same engine step by step, which asking for logprobs enforces: the
// same tokens and the same states, to the bit.
#include "kernels/decode_loop.h"

#include <atomic>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/shim/emulator.h"
#include "engine/engine_testing.h"
#include "testing/compare.h"

namespace adder::cuda_emulated {
namespace {

using namespace adder::testing;

EngineOptions on_emulator(int32_t slots) {
  EngineOptions options;
  options.slots = slots;
  options.wrap_backend = [](std::unique_ptr<Backend>) { return make_backend(0); };
  return options;
}

uint64_t grids() {
  return emulator::launch_count().grids;
}

// Different lengths, options and ends.
std::vector<GenerationRequest> requests() {
  std::vector<GenerationRequest> all(3, greedy(random_ids(1, 5), 7));
  all[1] = greedy(random_ids(2, 9), 5);
  all[1].sampling = {.temperature = 1.3f,
                     .top_k = 20,
                     .top_p = 0.9f,
                     .repeat_penalty = 1.4f,
                     .repeat_last_n = 6,
                     .seed = 77};
  all[2] = greedy(random_ids(3, 1), 9);
  all[2].sampling = {.temperature = 2.0f, .top_p = 1.0f, .min_p = 0.02f, .seed = ~uint64_t{0}};
  return all;
}

struct Outcome {
  std::vector<GenerationResult> results;
  std::vector<Conversation> conversations;
  std::vector<std::vector<float>> states;
  uint64_t grids = 0;
};

// `recent`: what conversations have had before.
Outcome run(Engine& engine, std::vector<GenerationRequest> all, bool step_by_step,
            const std::vector<int32_t>& recent = {}) {
  Outcome out;
  out.conversations.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (!recent.empty()) {
      const auto length = static_cast<int64_t>(recent.size());
      out.conversations[i] = {engine.states().acquire(), length, 0, recent, {}};
    }
    all[i].conversation = &out.conversations[i];
    all[i].finish_state = false;
    all[i].want_logprobs = step_by_step;
  }
  const uint64_t before = grids();
  out.results = generate(engine, all);
  out.grids = grids() - before;
  for (Conversation& c : out.conversations) {
    out.states.push_back(state_values(engine, c.state));
    c.state = StateHandle();
  }
  return out;
}

void expect_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.results.size(); ++i) {
    EXPECT_EQ(got.results[i].tokens, want.results[i].tokens) << i;
    EXPECT_EQ(got.results[i].finish, want.results[i].finish) << i;
    EXPECT_EQ(got.conversations[i].length, want.conversations[i].length) << i;
    EXPECT_EQ(got.conversations[i].token_hash, want.conversations[i].token_hash) << i;
    EXPECT_EQ(got.conversations[i].recent, want.conversations[i].recent) << i;
    EXPECT_TRUE(same_bits(got.states[i], want.states[i])) << i;
  }
}

class DecodeLoopOf : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine(int32_t slots = 3) {
    return golden_engine(GetParam(), on_emulator(slots));
  }
};
INSTANTIATE_TEST_SUITE_P(Families, DecodeLoopOf, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(DecodeLoopOf, GeneratesWhatStepsGenerate) {
  const auto e = engine();
  const Outcome want = run(*e, requests(), true);
  EXPECT_EQ(want.results[2].tokens.size(), 9u);
  for (uint64_t seed = 2; seed <= 3; ++seed) {
    emulator::set_schedule({.seed = seed});
    expect_same(run(*e, requests(), false), want);
  }
}

TEST(DecodeLoop, StopsAtStopTokens) {
  const auto e = golden_engine("mamba1_hf", on_emulator(3));
  auto all = requests();
  const Outcome whole = run(*e, all, true);
  all[0].stop_tokens = {whole.results[0].tokens[5], 3};
  all[1].stop_tokens = {whole.results[1].tokens[2]};
  all[2].stop_tokens = {whole.results[2].tokens[6]};
  const Outcome want = run(*e, all, true), got = run(*e, all, false);
  EXPECT_EQ(want.results[1].finish, FinishReason::kStop);
  expect_same(got, want);
  // The device was ahead of the host, which heard of the last end when more steps were under way.
  EXPECT_GT(got.grids, want.grids);
}

// The ring of the newest ids is full after a few tokens and goes round.
TEST(DecodeLoop, ForgetsTheOldestOfManyTokens) {
  const auto e = golden_engine("mamba1_hf", on_emulator(1));
  GenerationRequest request = greedy({1, 2}, 40);
  request.sampling.repeat_penalty = 1.9f;
  request.sampling.repeat_last_n = kDecodeRecent - 6;
  const auto recent = random_ids(4, kDecodeRecent - 8, 8);
  expect_same(run(*e, {request}, false, recent), run(*e, {request}, true, recent));
}

TEST(DecodeLoop, StreamsTextAndCanBeCancelled) {
  const auto e = demo_engine(on_emulator(1));
  std::atomic<bool> cancel{false};
  std::string streamed;
  GenerationRequest request;
  request.prompt = e->tokenizer().encode("T");
  request.max_tokens = 7;
  request.sampling.seed = 5;
  request.want_logprobs = true;
  const GenerationResult want = generate(*e, request);
  request.want_logprobs = false;
  request.on_text = [&](std::string_view text) { streamed += text; };
  const GenerationResult got = generate(*e, request);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(streamed, want.text);

  request.cancel = &cancel;
  request.on_text = [&](std::string_view) { cancel = true; };
  const GenerationResult part = generate(*e, request);
  EXPECT_EQ(part.finish, FinishReason::kCancelled);
  ASSERT_LT(part.tokens.size(), want.tokens.size());
  EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), want.tokens.begin()));
}

// A state that is not finite ends its own row.
TEST(DecodeLoop, NamesTheRowThatIsNotFinite) {
  const auto e = golden_engine("mamba2_hf_groups4", on_emulator(3));
  auto one = e->states().acquire(), two = e->states().acquire();
  const std::vector<float> bad(e->states().snapshot_bytes() / sizeof(float), NAN);
  e->states().restore(two, std::as_bytes(std::span(bad)));
  DecodeLoop* loop = e->decode_loop(3);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(e->decode_loop(3), loop);
  std::vector<DecodeRow> rows(3);
  rows[0].slot = two.slot();
  rows[2].slot = one.slot();
  for (DecodeRow& row : rows) row.token = 5, row.max_tokens = 2, row.sampling.temperature = 0;
  for (int again = 0; again < 2; ++again) {
    loop->start(rows);
    for (int i = 0; i < 3; ++i) loop->step();
    const auto first = loop->read();
    EXPECT_EQ(first[0], kDecodeNotFinite);
    EXPECT_EQ(first[1], kDecodeInert);
    EXPECT_GE(first[2], 0);
    const auto second = loop->read();
    EXPECT_EQ(second[0], kDecodeInert);
    EXPECT_GE(second[2], 0);
    EXPECT_EQ(loop->read()[2], kDecodeInert);  // after max_tokens
  }
}

TEST(DecodeLoop, RefusesWhatCannotBe) {
  const auto e = golden_engine("mamba1_hf", on_emulator(2));
  EXPECT_THROW(e->decode_loop(3), Error);
  DecodeLoop& loop = *e->decode_loop(2);
  EXPECT_THROW(loop.read(), Error);
  DecodeRow good;
  good.slot = 0;
  good.max_tokens = 5;
  const auto refused = [&](const std::string& field, const std::function<void(DecodeRow&)>& spoil) {
    DecodeRow row = good;
    spoil(row);
    expect_error([&] { loop.start({&row, 1}); }, ErrorCode::kBadInput, field);
  };
  const std::vector<int32_t> many(kDecodeRecent, 1);
  refused("slot", [](DecodeRow& r) { r.slot = -2; });
  refused("token", [](DecodeRow& r) { r.token = 1 << 20; });
  refused("max_tokens", [](DecodeRow& r) { r.max_tokens = 0; });
  refused("top_p", [](DecodeRow& r) { r.sampling.top_p = NAN; });
  refused("repeat_last_n", [](DecodeRow& r) { r.repeat_last_n = kDecodeRecent + 1; });
  refused("recent", [&](DecodeRow& r) { r.sampling.recent = many; });
  expect_error([&] { loop.start(std::vector<DecodeRow>(2, good)); }, ErrorCode::kBadInput,
               "distinct slots");
  expect_error([&] { loop.start(std::vector<DecodeRow>(3)); }, ErrorCode::kBadInput, "rows");
  loop.start({&good, 1});
  for (int64_t i = 0; i < loop.steps_in_flight(); ++i) loop.step();
  EXPECT_THROW(loop.step(), Error);
  loop.start({&good, 1});  // what was in flight is forgotten
  EXPECT_THROW(loop.read(), Error);
}

// A step that needs the host cannot be recorded, and the backend goes on to work.
TEST(DecodeLoop, RefusesAStepThatWaits) {
  const auto backend = make_backend(0);
  Buffer memory = backend->allocate(8 * sizeof(float));
  const Tensor logits(memory.data(), DType::kF32, {1, 8});
  std::vector<float> host(8);
  EXPECT_THROW(backend->make_decode_loop(1, 8,
                                         [&](auto, const PackedBatch&) {
                                           backend->read(logits,
                                                         std::as_writable_bytes(std::span(host)));
                                           return logits;
                                         }),
               Error);
  EXPECT_NO_THROW(backend->read(logits, std::as_writable_bytes(std::span(host))));
}

}  // namespace
}  // namespace adder::cuda_emulated
