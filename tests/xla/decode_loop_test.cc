// The decode loop of the XLA backend against the same engine step by step, which asking for
// logprobs enforces: the same tokens and the same states, to the bit on the interpreter.
#include "kernels/decode_loop.h"

#include <functional>

#include "backends/registry.h"

#include "testing/decode_outcome.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

// The longest is longer than one run of the loop.
std::vector<GenerationRequest> loop_requests() {
  return mixed_requests(39);
}

void expect_same_outcome(const DecodeOutcome& got, const DecodeOutcome& want) {
  testing::expect_same_outcome(got, want, same_numbers);
}

class XlaDecodeLoopOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, XlaDecodeLoopOf, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(XlaDecodeLoopOf, GeneratesWhatStepsGenerate) {
  const auto e = golden_engine(GetParam(), on_xla(3));
  const DecodeOutcome want = run_requests(*e, loop_requests(), true);
  EXPECT_EQ(want.results[2].tokens.size(), 39u);
  expect_same_outcome(run_requests(*e, loop_requests(), false), want);
  // The second time nothing is compiled.
  const auto before = programs_compiled(*e);
  expect_same_outcome(run_requests(*e, loop_requests(), false), want);
  EXPECT_EQ(programs_compiled(*e), before);
}

TEST(XlaDecodeLoop, StopsAtStopTokens) {
  const auto e = golden_engine("mamba1_hf", on_xla(3));
  auto all = loop_requests();
  const DecodeOutcome whole = run_requests(*e, all, true);
  all[0].stop_tokens = {whole.results[0].tokens[5], 3};
  all[1].stop_tokens = {whole.results[1].tokens[2]};
  all[2].stop_tokens = {whole.results[2].tokens[20]};
  const DecodeOutcome want = run_requests(*e, all, true);
  EXPECT_EQ(want.results[1].finish, FinishReason::kStop);
  expect_same_outcome(run_requests(*e, all, false), want);
}

// The ring of the newest ids is full after a few tokens and goes round.
TEST(XlaDecodeLoop, ForgetsTheOldestOfManyTokens) {
  const auto e = golden_engine("mamba1_hf", on_xla(1));
  for (const int32_t last : {3, kDecodeRecent - 6}) {
    GenerationRequest request = greedy({1, 2}, 40);
    request.sampling.repeat_penalty = 1.9f;
    request.sampling.repeat_last_n = last;
    const auto recent = random_ids(4, kDecodeRecent - 8, 8);
    expect_same_outcome(run_requests(*e, {request}, false, recent),
                        run_requests(*e, {request}, true, recent));
  }
}

// A state that is not finite ends its own row.
TEST(XlaDecodeLoop, NamesTheRowThatIsNotFinite) {
  const auto e = golden_engine("mamba2_hf_groups4", on_xla(3));
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

TEST(XlaDecodeLoop, RefusesWhatCannotBe) {
  const auto e = golden_engine("mamba1_hf", on_xla(2));
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
  refused("slot", [](DecodeRow& r) { r.slot = -2; });
  refused("max_tokens", [](DecodeRow& r) { r.max_tokens = 0; });
  refused("top_p", [](DecodeRow& r) { r.sampling.top_p = NAN; });
  loop.start({&good, 1});
  for (int64_t i = 0; i < loop.steps_in_flight(); ++i) loop.step();
  EXPECT_THROW(loop.step(), Error);
  loop.start({&good, 1});  // what was in flight is forgotten
  EXPECT_THROW(loop.read(), Error);
}

// A step that needs the host cannot be recorded, and the backend goes on to work. This is also what
// holds the forward pass to its promise: the loops above would not be made otherwise.
TEST(XlaDecodeLoop, RefusesAStepThatWaits) {
  const auto backend = make_backend("xla:interpreter");
  Buffer memory = backend->allocate(8 * sizeof(float));
  const Tensor logits(memory.data(), DType::kF32, {1, 8});
  std::vector<float> host(8);
  const auto read = [&] { backend->read(logits, std::as_writable_bytes(std::span(host))); };
  EXPECT_THROW(backend->make_decode_loop(1, 8,
                                         [&](auto, const PackedBatch&) {
                                           read();
                                           return logits;
                                         }),
               Error);
  EXPECT_NO_THROW(read());
}

}  // namespace
}  // namespace adder::testing
