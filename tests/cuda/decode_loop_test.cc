// The decode loop against the same engine step by step, which asking for logprobs enforces: the
// same tokens and the same states, to the bit.
#include "kernels/decode_loop.h"

#include <atomic>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/shim/emulator.h"
#include "engine/engine_testing.h"
#include "testing/compare.h"
#include "testing/decode_outcome.h"

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

std::vector<GenerationRequest> requests() {
  return mixed_requests(9);
}

struct Outcome : DecodeOutcome {
  uint64_t grids = 0;
};

Outcome run(Engine& engine, const std::vector<GenerationRequest>& all, bool step_by_step,
            const std::vector<int32_t>& recent = {}) {
  const uint64_t before = grids();
  Outcome out{run_requests(engine, all, step_by_step, recent)};
  out.grids = grids() - before;
  return out;
}

void expect_same(const Outcome& got, const Outcome& want) {
  expect_same_outcome(got, want, [](const auto& a, const auto& b) { return same_bits(a, b); });
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
