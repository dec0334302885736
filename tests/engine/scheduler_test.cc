// Many requests together: each as alone, none in the way of another, nothing left behind.
#include "engine/scheduler.h"

#include <new>

#include "engine/logit_editor.h"
#include "engine/serving_testing.h"
#include "testing/compare.h"

namespace adder::testing {
namespace {

GenerationResult alone(Engine& engine, const GenerationRequest& request) {
  return generate(engine, request);
}

void expect_same(const Answer& got, const GenerationResult& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  std::vector<float> logprobs;
  for (const TokenLogprobs& l : want.logprobs) logprobs.push_back(l.chosen.logprob);
  EXPECT_TRUE(same_bits(got.logprobs, logprobs));
  EXPECT_EQ(got.finish, want.finish);
}

class SchedulerOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, SchedulerOf, ::testing::ValuesIn(golden_families()));

TEST_P(SchedulerOf, AHundredRequestsOnFourSlotsEqualTheirSoloRuns) {
  const auto solo = golden_engine(GetParam());
  Rng rng(7);
  for (int round = 0; round < 2; ++round) {
    SchedulerOptions options;
    options.snapshot_every = 64;
    Serving s(GetParam(), 4, options);
    std::vector<std::shared_ptr<Recorder>> recorders;
    std::vector<ServeRequest> requests;
    std::vector<bool> cancelled;
    for (uint64_t i = 0; i < 100; ++i) {
      // Some prompts begin alike, so that the cache has something to do.
      std::vector<int32_t> prompt = random_ids(1, static_cast<int64_t>(rng.below(3)) * 64);
      for (const int32_t id : random_ids(i + 10, 1 + static_cast<int64_t>(rng.below(150)))) {
        prompt.push_back(id);
      }
      requests.push_back(serve(prompt, static_cast<int64_t>(rng.below(24)), i));
      recorders.push_back(s.submit(requests.back()));
      cancelled.push_back(rng.below(5) == 0);
      if (!cancelled.back()) continue;
      if (rng.below(2) == 0) recorders.back()->wait_tokens(1 + static_cast<int64_t>(rng.below(4)));
      s.scheduler.cancel(s.tickets[recorders.back().get()]);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      Recorder& r = recorders[i]->wait();
      ASSERT_FALSE(r.error().has_value()) << r.error()->what();
      const GenerationResult want = alone(*solo, requests[i].generation);
      if (cancelled[i] && r.answer().finish == FinishReason::kCancelled) {
        ASSERT_LE(r.answer().tokens.size(), want.tokens.size());
        EXPECT_TRUE(
            std::equal(r.answer().tokens.begin(), r.answer().tokens.end(), want.tokens.begin()));
        continue;
      }
      expect_same(r.answer(), want);
      EXPECT_EQ(r.usage().completion_tokens, static_cast<int64_t>(want.tokens.size()));
      EXPECT_EQ(r.usage().prompt_tokens,
                static_cast<int64_t>(requests[i].generation.prompt.size()));
    }
    EXPECT_EQ(s.free_slots(), 4);
    s.stop();
    const SchedulerStats stats = s.scheduler.stats();
    EXPECT_EQ(stats.requests, 100u);
    EXPECT_EQ(stats.finished + stats.cancelled, 100u);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.running, 0);
    EXPECT_GT(stats.cache.hits, 0u);
  }
}

TEST_P(SchedulerOf, APrefixFromTheCacheChangesNoBit) {
  SchedulerOptions options;
  options.snapshot_every = 128;
  Serving s(GetParam(), 2, options);
  const int64_t align = exact_alignment(s.engine->config());
  const auto solo = golden_engine(GetParam());
  const auto check = [&](const std::vector<int32_t>& prompt, int64_t cached) {
    SCOPED_TRACE(prompt.size());
    const ServeRequest request = serve(prompt, 5, 3);
    Recorder& r = s.ask(request);
    expect_same(r.answer(), alone(*solo, request.generation));
    EXPECT_EQ(r.usage().cached_tokens, cached);
  };
  const std::vector<int32_t> prompt = random_ids(1, 300);
  check(prompt, 0);
  const int64_t whole = 300 / align * align;
  check(prompt, whole);  // again
  std::vector<int32_t> longer = prompt;
  for (const int32_t id : random_ids(2, 100)) longer.push_back(id);
  check(longer, whole);
  std::vector<int32_t> edited = prompt;  // in the tail: the snapshot at 256 is still right
  edited[270] = edited[270] == 5 ? 6 : 5;
  check(edited, 256);
  std::vector<int32_t> other = prompt;  // in the head: nothing is
  other[0] = other[0] == 5 ? 6 : 5;
  check(other, 0);
  // A snapshot at the very end of a prompt serves only with its logits, which one in the middle of
  // another prompt has not.
  check({prompt.begin(), prompt.begin() + 128}, 0);
  const std::vector<int32_t> even = random_ids(9, 192);
  check(even, 0);
  check(even, 192);
}

TEST_P(SchedulerOf, AnAnswerIsReusedWhereThatIsExact) {
  Serving s(GetParam(), 1);
  const std::vector<int32_t> prompt = random_ids(4, 100);
  const Recorder& first = s.ask(serve(prompt, 80, 5));
  std::vector<int32_t> next = prompt;
  const auto& tokens = const_cast<Recorder&>(first).answer().tokens;
  next.insert(next.end(), tokens.begin(), tokens.end());
  next.push_back(7);
  const ServeRequest request = serve(next, 6, 8);
  Recorder& r = s.ask(request);
  EXPECT_EQ(r.usage().cached_tokens, decode_is_exact(s.engine->config()) ? 179 : 64);
  expect_same(r.answer(), alone(*golden_engine(GetParam()), request.generation));
}

TEST_P(SchedulerOf, SeveralAnswersShareOnePrompt) {
  Serving s(GetParam(), 5);
  const auto solo = golden_engine(GetParam());
  ServeRequest request = serve(random_ids(3, 90), 12, 40);
  request.n = 4;
  request.generation.editor = make_penalty_editor({{{5, 2.0f}, {6, -100.0f}}, 0.5f, 0.25f});
  const auto other = s.submit(serve(random_ids(4, 200), 30, 1));
  Recorder& r = s.ask(request);
  ASSERT_EQ(r.answers(), 4u);
  for (int i = 0; i < 4; ++i) {
    GenerationRequest one = request.generation;
    one.sampling.seed += static_cast<uint64_t>(i);
    one.editor = request.generation.editor->clone();
    expect_same(r.answer(i), alone(*solo, one));
    EXPECT_EQ(std::count(r.answer(i).tokens.begin(), r.answer(i).tokens.end(), 6), 0);
  }
  EXPECT_EQ(r.usage().completion_tokens, 48);
  EXPECT_EQ(r.usage().prompt_tokens, 90);
  other->wait();
  EXPECT_EQ(s.free_slots(), 5);
  request.n = 6;
  EXPECT_THROW(s.submit(request), Error);
}

TEST(Scheduler, ALongPromptDelaysOthersByABlockAtMost) {
  Serving s("mamba2_hf_groups4", 2);
  const auto talker = s.submit(serve(random_ids(1, 10), 4000));
  talker->wait_tokens(3);
  int64_t at_start = 0, at_first = 0;
  auto listener = std::make_shared<Recorder>();
  listener->on_started = [&] { at_start = talker->tokens(); };
  listener->on_tokens = [&] {
    if (at_first == 0) at_first = talker->tokens();
  };
  s.scheduler.submit(serve(random_ids(2, 64 * 20), 2), listener);
  listener->wait();
  EXPECT_GE(at_first - at_start, 19);  // a token with each block but the first
  s.scheduler.cancel(s.tickets[talker.get()]);
  talker->wait();
}

TEST(Scheduler, PromptsTakeTurns) {
  Serving s("mamba1_hf", 2);
  // A short prompt that comes behind a long one is not kept waiting for all of it.
  const auto longest = s.submit(serve(random_ids(1, 64 * 400), 1));
  const auto brief = s.submit(serve(random_ids(2, 64 * 3), 1));
  brief->wait();
  EXPECT_EQ(longest->tokens(), 0);
  longest->wait();
}

TEST(Scheduler, AFullQueueRefusesAndPrioritiesOvertake) {
  SchedulerOptions options;
  options.max_queue = 2;
  Serving s("mamba1_hf", 1, options);
  const auto running = s.submit(serve(random_ids(1, 5), 100'000));
  running->wait_tokens(1);
  while (s.scheduler.stats().free_slots != 0) std::this_thread::yield();
  std::vector<int> order;
  const auto waiter = [&](int name, int priority) {
    auto recorder = std::make_shared<Recorder>();
    recorder->on_started = [&order, name] { order.push_back(name); };
    ServeRequest request = serve(random_ids(2, 5), 2);
    request.priority = priority;
    s.scheduler.submit(request, recorder);
    return recorder;
  };
  const auto low = waiter(1, 0), high = waiter(2, 1);
  expect_error([&] { waiter(3, 5); }, ErrorCode::kBusy, "2 requests are waiting");
  EXPECT_EQ(s.scheduler.stats().refused, 1u);
  s.scheduler.cancel(s.tickets[running.get()]);
  EXPECT_EQ(running->wait().answer().finish, FinishReason::kCancelled);
  low->wait();
  high->wait();
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST(Scheduler, DeadlinesHoldWhileWaitingAndWhileRunning) {
  Serving s("mamba1_hf", 1);
  ServeRequest endless = serve(random_ids(1, 5), int64_t{1} << 40);
  endless.deadline = Scheduler::Clock::now() + std::chrono::milliseconds(300);
  ServeRequest behind = serve(random_ids(1, 5), 2);
  behind.deadline = Scheduler::Clock::now() + std::chrono::milliseconds(50);
  const auto running = s.submit(endless);
  running->wait_tokens(1);
  const auto waiting = s.submit(behind);
  ASSERT_TRUE(waiting->wait().error().has_value());
  EXPECT_EQ(waiting->error()->code(), ErrorCode::kTimeout);
  ASSERT_TRUE(running->wait().error().has_value());
  EXPECT_EQ(running->error()->code(), ErrorCode::kTimeout);
  EXPECT_EQ(s.free_slots(), 1);
}

TEST(Scheduler, AWaitingRequestCanBeCancelled) {
  Serving s("mamba1_hf", 1);
  const auto running = s.submit(serve(random_ids(1, 5), int64_t{1} << 40));
  running->wait_tokens(1);
  ServeRequest request = serve(random_ids(1, 5), 2);
  const auto waiting = s.submit(request);
  s.scheduler.cancel(s.tickets[waiting.get()]);
  EXPECT_EQ(waiting->wait().answer().finish, FinishReason::kCancelled);
  s.scheduler.cancel(s.tickets[waiting.get()]);  // once more, too late
  s.scheduler.cancel(s.tickets[running.get()]);
  running->wait();
}

TEST(Scheduler, StoppingLetsRequestsEndAndTakesNoNewOnes) {
  Serving s("mamba1_hf", 1);
  const auto first = s.submit(serve(random_ids(1, 5), 50));
  const auto second = s.submit(serve(random_ids(2, 5), 5));
  s.scheduler.stop(Scheduler::Clock::now() + std::chrono::minutes(1));
  EXPECT_THROW(s.submit(serve(random_ids(1, 5), 1)), Error);
  EXPECT_EQ(first->wait().answer().tokens.size(), 50u);
  EXPECT_EQ(second->wait().answer().tokens.size(), 5u);
  s.stop();

  Serving late("mamba1_hf", 1);
  const auto endless = late.submit(serve(random_ids(1, 5), int64_t{1} << 40));
  endless->wait_tokens(1);
  late.stop(std::chrono::milliseconds(20));
  ASSERT_TRUE(endless->wait().error().has_value());
  EXPECT_EQ(endless->error()->code(), ErrorCode::kBusy);
}

TEST(Scheduler, BadRequestsAreRefusedAtOnce) {
  Serving s("mamba1_hf", 2);
  EXPECT_THROW(s.submit(serve({}, 1)), Error);
  EXPECT_THROW(s.submit(serve({1 << 20}, 1)), Error);
  EXPECT_THROW(s.submit(serve({1}, -1)), Error);
  ServeRequest hot = serve({1}, 1);
  hot.generation.sampling.temperature = -1;
  EXPECT_THROW(s.submit(hot), Error);
  ServeRequest nothing = serve({1}, 3);  // a bias that leaves nothing to choose
  std::vector<std::pair<int32_t, float>> bias;
  for (int32_t id = 0; id < s.engine->vocab_limit(); ++id) {
    bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  nothing.generation.editor = make_penalty_editor({bias, 0, 0});
  const auto neighbour = s.submit(serve(random_ids(1, 5), 20));
  Recorder& refused = s.ask(nothing);
  ASSERT_TRUE(refused.error().has_value());
  EXPECT_EQ(refused.error()->code(), ErrorCode::kBadInput);
  EXPECT_EQ(neighbour->wait().answer().tokens.size(), 20u);
  EXPECT_EQ(s.free_slots(), 2);
}

// As if memory had run out while a token is chosen.
class MemoryEater : public LogitEditor {
 public:
  std::unique_ptr<LogitEditor> clone() const override { return std::make_unique<MemoryEater>(); }
  void edit(std::span<float> /*logits*/) override { throw std::bad_alloc(); }
  void accept(int32_t /*token*/) override {}
};

TEST(Scheduler, MemoryThatRunsOutEndsTheRequestsOfAStepAndNotTheServer) {
  Serving s("mamba1_hf", 2);
  ServeRequest request = serve(random_ids(1, 70), 4);
  s.ask(request);
  s.inside([](const Scheduler::Inside& in) { EXPECT_GT(in.cache.stats().entries, 0u); });
  ServeRequest doomed = serve(random_ids(2, 5), 4);
  doomed.generation.editor = std::make_unique<MemoryEater>();
  Recorder& r = s.ask(doomed);
  ASSERT_TRUE(r.error().has_value());
  EXPECT_EQ(r.error()->code(), ErrorCode::kBusy);
  EXPECT_NE(std::string(r.error()->what()).find("out of memory"), std::string::npos);
  s.inside([](const Scheduler::Inside& in) {
    EXPECT_EQ(in.cache.stats().entries, 0u);  // what might be asked for again makes room
    EXPECT_EQ(in.cache.stats().bytes, 0u);
  });
  EXPECT_EQ(s.free_slots(), 2);
  EXPECT_EQ(s.ask(request).answer().finish, FinishReason::kLength);
}

TEST(Scheduler, AStateThatIsNotFiniteEndsAloneAndIsReported) {
  SchedulerOptions options;
  options.monitor_every = 4;
  Serving s("mamba2_hf_groups4", 2, options);
  const auto neighbour = s.submit(serve(random_ids(1, 5), 200));
  s.inside([&](const Scheduler::Inside& in) {
    in.sessions.create("broken");
    in.sessions.lease("broken");
    ParkedState state;
    state.tokens = random_ids(3, 10);
    const std::vector<float> bad(in.engine.states().snapshot_bytes() / sizeof(float),
                                 std::numeric_limits<float>::quiet_NaN());
    const auto bytes = std::as_bytes(std::span(bad));
    state.state.assign(bytes.begin(), bytes.end());
    in.sessions.advance("broken", std::move(state), std::vector<Stretch>{{10, false}});
  });
  ServeRequest request = serve(random_ids(5, 3), 10);
  request.session = "broken";
  Recorder& r = s.ask(request);
  ASSERT_TRUE(r.error().has_value());
  EXPECT_EQ(r.error()->code(), ErrorCode::kInternal);
  EXPECT_NE(std::string(r.error()->what()).find("not finite"), std::string::npos);
  EXPECT_EQ(neighbour->wait().answer().tokens.size(), 200u);
  expect_same(neighbour->answer(),
              alone(*golden_engine("mamba2_hf_groups4"), serve(random_ids(1, 5), 200).generation));
  EXPECT_EQ(s.free_slots(), 2);
  s.stop();
  EXPECT_EQ(s.scheduler.stats().non_finite, 1u);
  EXPECT_GT(s.scheduler.stats().measurements, 0u);
}

TEST(Scheduler, MonitorsShowRunningSequencesAndALimitEndsThem) {
  SchedulerOptions options;
  options.monitor_every = 2;
  Serving s("mamba1_hf", 1, options);
  const auto running = s.submit(serve(random_ids(1, 5), int64_t{1} << 40));
  running->wait_tokens(10);
  s.inside([&](const Scheduler::Inside& in) {
    const auto sequences = in.monitor.sequences();
    ASSERT_EQ(sequences.size(), 1u);
    EXPECT_EQ(sequences[0].layers.size(), static_cast<size_t>(in.engine.config().n_layer));
    EXPECT_TRUE(sequences[0].finite());
    EXPECT_GT(sequences[0].max_norm(), 0);
    EXPECT_GT(sequences[0].layers[0].conv_norm, 0);
  });
  s.scheduler.cancel(s.tickets[running.get()]);
  running->wait();
  s.inside([&](const Scheduler::Inside& in) { EXPECT_TRUE(in.monitor.sequences().empty()); });

  options.max_state_norm = 1e-9;
  Serving strict("mamba1_hf", 1, options);
  Recorder& r = strict.ask(serve(random_ids(1, 5), 10));
  ASSERT_TRUE(r.error().has_value());
  EXPECT_NE(std::string(r.error()->what()).find("the limit is"), std::string::npos);
  EXPECT_EQ(strict.free_slots(), 1);
}

}  // namespace
}  // namespace adder::testing
