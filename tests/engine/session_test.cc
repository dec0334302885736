// Named conversations: continued, forked, rolled back, saved and restored, exactly.
#include "engine/session_store.h"

#include "engine/serving_testing.h"
#include "engine/session_file.h"
#include "testing/compare.h"

namespace adder::testing {
namespace {

class SessionsOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, SessionsOf, ::testing::ValuesIn(golden_families()));

ServeRequest turn(const std::string& session, std::vector<int32_t> prompt, int64_t max_tokens,
                  uint64_t seed) {
  ServeRequest r = serve(std::move(prompt), max_tokens, seed);
  r.session = session;
  return r;
}

void create(Serving& s, const std::string& id) {
  s.inside([&](const Scheduler::Inside& in) { in.sessions.create(id); });
}

void expect_same(const ParkedState& got, const ParkedState& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.state, want.state);
  EXPECT_TRUE(same_bits(got.logits, want.logits));
}

TEST_P(SessionsOf, TurnsContinueAsAConversationDoes) {
  Serving s(GetParam(), 2);
  create(s, "talk");
  const auto solo = golden_engine(GetParam());
  Conversation c;
  int64_t before = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const ServeRequest request = turn("talk", random_ids(i, i == 2 ? 0 : 70), 5, i);
    Recorder& r = s.ask(request);
    ASSERT_FALSE(r.error().has_value()) << r.error()->what();
    GenerationRequest same = request.generation;
    same.conversation = &c;
    const GenerationResult want = generate(*solo, same);
    EXPECT_EQ(r.answer().tokens, want.tokens);
    EXPECT_EQ(r.usage().cached_tokens, before);
    EXPECT_EQ(r.usage().prompt_tokens, want.prompt_tokens);
    before = c.length;
  }
  const ParkedState parked = s.parked("talk");
  EXPECT_EQ(static_cast<int64_t>(parked.tokens.size()), c.length);
  std::vector<float> state(parked.state.size() / sizeof(float));
  std::memcpy(state.data(), parked.state.data(), parked.state.size());
  EXPECT_TRUE(same_bits(state, state_values(*solo, c.state)));
  EXPECT_TRUE(same_bits(parked.logits, c.logits));
}

TEST_P(SessionsOf, RollbackIsExact) {
  Serving s(GetParam(), 2);
  create(s, "talk");
  std::vector<ParkedState> states = {s.parked("talk")};
  for (uint64_t i = 0; i < 5; ++i) {
    s.ask(turn("talk", random_ids(i, i == 3 ? 0 : 75), i == 1 ? 0 : 6, i));
    states.push_back(s.parked("talk"));
  }
  for (size_t i = states.size(); i-- > 0;) {
    SCOPED_TRACE(i);
    const size_t now = s.parked("talk").tokens.size();
    const auto error = s.rollback("talk", static_cast<int64_t>(now - states[i].tokens.size()));
    ASSERT_FALSE(error.has_value()) << error->what();
    expect_same(s.parked("talk"), states[i]);
  }
  EXPECT_TRUE(s.rollback("talk", 1).has_value());  // nothing is left
  EXPECT_TRUE(s.rollback("nobody", 0).has_value());
  EXPECT_EQ(s.free_slots(), 2);
}

TEST_P(SessionsOf, RollbackIntoAnAnswerGivesTheAnswerAgain) {
  Serving s(GetParam(), 2);
  create(s, "talk");
  s.ask(turn("talk", random_ids(1, 70), 10, 5));
  const ParkedState whole = s.parked("talk");
  // Seven of the ten tokens are taken back; greedy decoding would not find sampled ones again, but
  // the same seed at the same place does.
  ASSERT_FALSE(s.rollback("talk", 7).has_value());
  const ParkedState part = s.parked("talk");
  EXPECT_EQ(part.tokens, std::vector<int32_t>(whole.tokens.begin(), whole.tokens.begin() + 73));
  s.ask(turn("talk", {}, 7, 5));
  expect_same(s.parked("talk"), whole);
}

TEST_P(SessionsOf, ForksAreIndependent) {
  Serving s(GetParam(), 2);
  create(s, "a");
  s.ask(turn("a", random_ids(1, 70), 10, 5));
  const ParkedState before = s.parked("a");
  s.inside([](const Scheduler::Inside& in) {
    const SessionInfo info = in.sessions.fork("a", "b");
    EXPECT_EQ(info.parent, "a");
    EXPECT_EQ(info.tokens, 80);
    expect_error([&] { in.sessions.fork("a", "b"); }, ErrorCode::kConflict, "'b' exists already");
    expect_error([&] { in.sessions.fork("c", "d"); }, ErrorCode::kNotFound, "'c' does not exist");
  });
  s.ask(turn("b", random_ids(2, 5), 3, 1));
  expect_same(s.parked("a"), before);
  ASSERT_FALSE(s.rollback("b", 8).has_value());
  expect_same(s.parked("b"), before);
}

TEST_P(SessionsOf, SavedSessionsSurviveARestart) {
  const TempDir folder;
  SchedulerOptions options;
  options.session_dir = folder.path("sessions");
  ParkedState before;
  {
    Serving s(GetParam(), 1, options);
    create(s, "talk");
    create(s, "empty");
    s.ask(turn("talk", random_ids(1, 70), 10, 5));
    s.ask(turn("talk", random_ids(2, 7), 4, 6));
    before = s.parked("talk");
    s.inside([](const Scheduler::Inside& in) {
      EXPECT_FALSE(in.sessions.info("talk").saved);
      EXPECT_TRUE(in.sessions.save("talk").saved);
      in.sessions.save("empty");
    });
    s.ask(turn("talk", random_ids(3, 7), 4, 6));
    s.inside([](const Scheduler::Inside& in) { EXPECT_FALSE(in.sessions.info("talk").saved); });
    s.inside([](const Scheduler::Inside& in) { in.sessions.restore("talk"); });
    expect_same(s.parked("talk"), before);
  }
  Serving s(GetParam(), 1, options);
  s.inside([](const Scheduler::Inside& in) {
    const auto list = in.sessions.list();
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[1].id, "talk");
    EXPECT_EQ(list[1].tokens, 91);
    EXPECT_EQ(list[1].turns, 2);
    EXPECT_EQ(list[1].bytes, 0u);  // not read yet
  });
  expect_same(s.parked("talk"), before);
  ASSERT_FALSE(s.rollback("talk", 11).has_value());
  EXPECT_EQ(s.parked("talk").tokens.size(), 80u);
  EXPECT_TRUE(s.parked("empty").tokens.empty());
  s.inside([](const Scheduler::Inside& in) {
    in.sessions.remove("talk");
    expect_error([&] { in.sessions.info("talk"); }, ErrorCode::kNotFound, "does not exist");
  });
  EXPECT_FALSE(std::filesystem::exists(folder.path("sessions/talk.session")));
}

TEST(Sessions, WhatAKilledProcessLeftBehindGoesOnceItIsOld) {
  const TempDir folder;
  SchedulerOptions options;
  options.session_dir = folder.path();
  for (const std::string name : {"a.session.Ab3dEf", "b.session.xxxxxx", "c.session.txt"}) {
    folder.write(name, "half");
  }
  for (const std::string name : {"a.session.Ab3dEf", "c.session.txt"}) {
    std::filesystem::last_write_time(
        folder.path(name), std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  Serving s("mamba1_hf", 1, options);
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.session.Ab3dEf")));
  EXPECT_TRUE(std::filesystem::exists(folder.path("b.session.xxxxxx")));  // perhaps in the making
  EXPECT_TRUE(std::filesystem::exists(folder.path("c.session.txt")));     // somebody else's
}

TEST(Sessions, MemoryIsBounded) {
  const TempDir folder;
  SchedulerOptions options;
  options.session_dir = folder.path();
  uint64_t one = 0;
  {
    Serving s("mamba1_hf", 1);
    create(s, "x");
    s.ask(turn("x", random_ids(1, 10), 2, 1));
    s.inside([&](const Scheduler::Inside& in) { one = in.sessions.bytes(); });
  }
  options.session_bytes = 3 * one;
  Serving s("mamba1_hf", 1, options);
  for (int i = 0; i < 10; ++i) {
    const std::string id = fmt::format("s{}", i);
    create(s, id);
    s.ask(turn(id, random_ids(static_cast<uint64_t>(i), 10), 2, 1));
    s.inside([&](const Scheduler::Inside& in) { EXPECT_LE(in.sessions.bytes(), 3 * one); });
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(s.parked(fmt::format("s{}", i)).tokens.size(), 12u);
  }

  options.session_dir.clear();  // without a disk, more are refused
  Serving full("mamba1_hf", 1, options);
  for (int i = 0; i < 3; ++i) {
    const std::string id = fmt::format("s{}", i);
    create(full, id);
    full.ask(turn(id, random_ids(static_cast<uint64_t>(i), 11 + i), 2, 1));
  }
  full.inside([](const Scheduler::Inside& in) {
    expect_error([&] { in.sessions.create("more"); }, ErrorCode::kBusy, "bytes");
  });
}

TEST(Sessions, ADiskThatCannotBeWrittenFailsNoRequest) {
  const TempDir folder;
  SchedulerOptions options;
  options.session_dir = folder.path("sessions");
  options.session_bytes = 1;
  Serving s("mamba1_hf", 2, options);
  create(s, "talk");
  std::filesystem::remove_all(options.session_dir);
  const auto neighbour = s.submit(serve(random_ids(1, 5), 100));
  Recorder& r = s.ask(turn("talk", random_ids(1, 10), 2, 1));
  EXPECT_FALSE(r.error().has_value());
  EXPECT_FALSE(neighbour->wait().error().has_value());
  EXPECT_EQ(s.parked("talk").tokens.size(), 12u);
  s.inside([](const Scheduler::Inside& in) {
    EXPECT_NE(in.sessions.info("talk").problem, "");
    expect_error([&] { in.sessions.create("more"); }, ErrorCode::kBusy, "bytes");
  });
}

TEST(Sessions, OneRequestAtATime) {
  Serving s("mamba1_hf", 3);
  create(s, "talk");
  ServeRequest endless = turn("talk", random_ids(1, 5), int64_t{1} << 40, 1);
  const auto running = s.submit(endless);
  running->wait_tokens(2);
  Recorder& second = s.ask(turn("talk", random_ids(1, 5), 2, 1));
  ASSERT_TRUE(second.error().has_value());
  EXPECT_EQ(second.error()->code(), ErrorCode::kBusy);
  s.inside([](const Scheduler::Inside& in) {
    EXPECT_TRUE(in.sessions.info("talk").busy);
    EXPECT_THROW(in.sessions.remove("talk"), Error);
  });
  s.scheduler.cancel(s.tickets[running.get()]);
  running->wait();
  // It is what it was before.
  EXPECT_TRUE(s.parked("talk").tokens.empty());
  Recorder& unknown = s.ask(turn("nobody", random_ids(1, 5), 2, 1));
  ASSERT_TRUE(unknown.error().has_value());
  EXPECT_EQ(unknown.error()->code(), ErrorCode::kNotFound);
  Recorder& nothing = s.ask(turn("talk", {}, 2, 1));
  ASSERT_TRUE(nothing.error().has_value());
  EXPECT_EQ(nothing.error()->code(), ErrorCode::kBadInput);
  ServeRequest two = turn("talk", {1}, 2, 1);
  two.n = 2;
  EXPECT_THROW(s.submit(two), Error);
}

TEST(Sessions, BadIdsAreRefused) {
  Serving s("mamba1_hf", 1);
  s.inside([](const Scheduler::Inside& in) {
    for (const std::string id :
         {".", "..", ".hidden", "a/b", "a b", "../../etc/passwd", "ä", "a\n"}) {
      EXPECT_THROW(in.sessions.create(id), Error) << id;
      EXPECT_THROW(in.sessions.info(id), Error) << id;
    }
    EXPECT_THROW(in.sessions.create(std::string(65, 'a')), Error);
    EXPECT_EQ(in.sessions.create(std::string(64, 'a')).id.size(), 64u);
    EXPECT_EQ(in.sessions.create("").id.size(), 16u);
    expect_error([&] { in.sessions.save(std::string(64, 'a')); }, ErrorCode::kBadInput, "a folder");
  });
}

// Whatever is cut off or changed, a file is refused; the others stay usable.
TEST(Sessions, DamagedFilesAreRefused) {
  const TempDir folder;
  SchedulerOptions options;
  options.session_dir = folder.path();
  const auto foreign = golden_engine("mamba2_hf_groups4");
  {
    Serving s("mamba1_hf", 1, options);
    create(s, "talk");
    s.ask(turn("talk", random_ids(1, 70), 10, 5));
    s.inside([](const Scheduler::Inside& in) { in.sessions.save("talk"); });
  }
  const std::string file = folder.path("talk.session"), whole = read_file(file);
  EXPECT_THROW(load_session(*foreign, file, true), Error);
  const auto engine = golden_engine("mamba1_hf");
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    std::string bad = whole;
    if (i % 2 == 0) {
      bad.resize(rng.below(bad.size()));
    } else {
      bad[rng.below(bad.size())] ^= static_cast<char>(1 + rng.below(255));
    }
    EXPECT_THROW(parse_session(*engine, std::as_bytes(std::span(bad)), "x", false), Error);
  }
  folder.write("talk.session", whole.substr(0, whole.size() - 5));
  folder.write("other.session", "rubbish");
  Serving s("mamba1_hf", 1, options);
  s.inside([](const Scheduler::Inside& in) {
    EXPECT_NE(in.sessions.info("other").problem, "");
    expect_error([&] { in.sessions.restore("talk"); }, ErrorCode::kBadInput,
                 "truncated or damaged");
    expect_error([&] { in.sessions.lease("other"); }, ErrorCode::kBadInput, "not a session file");
    in.sessions.create("fine");
  });
}

}  // namespace
}  // namespace adder::testing
