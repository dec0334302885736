// Whole models recorded and run by the interpreter, against the reference backend.

#include "engine/scoring.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

// "XLA backend, fp32 HIGHEST: logits rel 1e-5", relative to logits of the order of 1 and more.
constexpr Tolerance kXlaLogits{1e-5, 1e-5};

class XlaModel : public ::testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<Engine> engine(int32_t slots = 2, int64_t block = 64) {
    return golden_engine(GetParam(), on_xla(slots, block));
  }
  static std::unique_ptr<Engine> reference(int32_t slots = 2) {
    EngineOptions options;
    options.device = "ref";
    options.slots = slots;
    options.block = 64;
    return golden_engine(GetParam(), options);
  }
  // Logits of the last row of each piece of a sequence, one after the other.
  static std::vector<float> feed(Engine& engine, StateHandle& state,
                                 const std::vector<int32_t>& tokens,
                                 const std::vector<size_t>& pieces) {
    std::vector<float> all;
    size_t at = 0;
    for (const size_t length : pieces) {
      const Piece piece{&state, std::span(tokens).subspan(at, length)};
      const std::vector<int32_t> last = {static_cast<int32_t>(length) - 1};
      const Tensor logits = engine.logits(engine.step({&piece, 1}), last);
      std::vector<float> row(static_cast<size_t>(logits.size()));
      engine.backend().read(logits, std::as_writable_bytes(std::span(row)));
      append_to(all, row);
      at += length;
    }
    return all;
  }
  static void append_to(std::vector<float>& all, const std::vector<float>& row) {
    all.insert(all.end(), row.begin(), row.end());
  }
  static std::vector<float> last_row(const std::vector<float>& rows, size_t width) {
    return {rows.end() - static_cast<std::ptrdiff_t>(width), rows.end()};
  }
};
INSTANTIATE_TEST_SUITE_P(Golden, XlaModel,
                         ::testing::Values("mamba1_hf", "falcon_mamba", "mamba2_hf_groups4",
                                           "codestral", "mamba1_hf_f16", "gguf_mamba2_bf16"),
                         [](const auto& test) { return test.param; });

TEST_P(XlaModel, LogitsAndStatesAreThoseOfTheReference) {
  const auto xla = engine(), ref = reference();
  const auto tokens = random_ids(7, 60, 90);
  for (const std::vector<size_t>& pieces :
       {std::vector<size_t>{13, 1, 1, 1, 16, 1}, std::vector<size_t>{60}}) {
    auto a = xla->states().acquire(), b = ref->states().acquire();
    EXPECT_TRUE(close(feed(*xla, a, tokens, pieces), feed(*ref, b, tokens, pieces), kXlaLogits));
    EXPECT_TRUE(close(state_values(*xla, a), state_values(*ref, b), kScan));
  }
}

TEST_P(XlaModel, GreedyTextIsThatOfTheReference) {
  const auto xla = engine(), ref = reference();
  const auto request = greedy(random_ids(8, 9, 90), 64);
  EXPECT_EQ(generate(*xla, request).tokens, generate(*ref, request).tokens);
}

TEST_P(XlaModel, ASplitPromptIsTheWholeOne) {
  const auto e = engine();
  const auto tokens = random_ids(9, 64, 90);
  auto whole = e->states().acquire();
  const auto want = feed(*e, whole, tokens, {64});
  const auto want_state = state_values(*e, whole);
  for (const std::vector<size_t>& pieces :
       {std::vector<size_t>{32, 32}, std::vector<size_t>{1, 2, 3, 58}}) {
    auto state = e->states().acquire();
    const auto got = feed(*e, state, tokens, pieces);
    EXPECT_TRUE(close(last_row(got, want.size()), want, kReplayLogits));
    EXPECT_TRUE(close(state_values(*e, state), want_state, kScan));
  }
}

// What varies from step to step is an argument: the tokens, the slot, the length within its size.
TEST_P(XlaModel, TheSameShapeCompilesOnce) {
  const auto e = engine(4);
  const auto tokens = random_ids(10, 64, 90);
  std::vector<StateHandle> states;
  for (int i = 0; i < 4; ++i) states.push_back(e->states().acquire());
  // A snapshot and a restore, as a cache makes them, have their own programs.
  feed(*e, states[0], tokens, {20, 1});
  const auto before = programs_compiled(*e);
  feed(*e, states[0], tokens, {1, 1, 31});
  feed(*e, states[1], tokens, {17, 1, 25, 1});
  EXPECT_EQ(programs_compiled(*e), before);
  const auto saved = state_values(*e, states[0]);
  e->states().restore(states[2], std::as_bytes(std::span(saved)));
  StateHandle shared = states[2];
  states[1] = StateHandle();
  e->states().make_unique(shared);
  EXPECT_TRUE(same_bits(state_values(*e, shared), saved));
  const auto with_copies = programs_compiled(*e);
  e->states().restore(states[3], std::as_bytes(std::span(saved)));
  EXPECT_TRUE(same_bits(state_values(*e, states[3]), saved));
  feed(*e, states[3], tokens, {1, 18});
  EXPECT_EQ(programs_compiled(*e), with_copies);
}

// The blocks of a prompt are programs of their own: the last one gives logits, the others are
// alike.
TEST_P(XlaModel, ALongerPromptCompilesNothingMore) {
  const auto e = engine();
  const auto tokens = random_ids(12, 64 * 6, 90);
  for (int i = 0; i < 2; ++i) last_logits(*e, std::span(tokens).first(64 * 3), 1);
  const int64_t compiled = programs_compiled(*e);
  last_logits(*e, tokens, 1);
  EXPECT_EQ(programs_compiled(*e), compiled);
}

// Any batch of one token each, of three or four sequences, is one program.
TEST_P(XlaModel, BatchesOfOneTokenShareAProgram) {
  const auto e = engine(6);
  std::vector<StateHandle> states;
  for (int i = 0; i < 6; ++i) states.push_back(e->states().acquire());
  const auto step = [&](const std::vector<size_t>& which) {
    std::vector<int32_t> tokens, rows;
    std::vector<Piece> pieces;
    for (const size_t i : which) tokens.push_back(static_cast<int32_t>(i) + 3);
    for (size_t i = 0; i < which.size(); ++i) {
      pieces.push_back({&states[which[i]], std::span(tokens).subspan(i, 1)});
      rows.push_back(static_cast<int32_t>(i));
    }
    const Tensor logits = e->logits(e->step(pieces), rows);
    std::vector<float> host(static_cast<size_t>(logits.size()));
    e->backend().read(logits, std::as_writable_bytes(std::span(host)));
    return host;
  };
  const auto together = step({0, 1, 2});
  const auto before = programs_compiled(*e);
  step({5, 3, 4});
  step({1, 0, 2, 5});
  EXPECT_EQ(programs_compiled(*e), before);
  // Each row is what it is alone.
  const size_t width = together.size() / 3;
  for (size_t i = 0; i < 3; ++i) {
    states[i] = StateHandle();
    states[i] = e->states().acquire();
    const auto alone = step({i});
    const auto row = together.begin() + static_cast<std::ptrdiff_t>(i * width);
    EXPECT_TRUE(same_numbers(alone, {row, row + static_cast<std::ptrdiff_t>(width)})) << i;
  }
}

// Prompts beside sequences that generate: where they lie and how long they are is an argument.
TEST_P(XlaModel, MixedStepsOfTheSameSizesShareAProgram) {
  const auto e = engine(6, 128);
  std::vector<StateHandle> states;
  for (int i = 0; i < 6; ++i) states.push_back(e->states().acquire());
  const auto tokens = random_ids(11, 128, 90);
  const auto step = [&](const std::vector<std::pair<size_t, size_t>>& parts) {
    std::vector<Piece> pieces;
    std::vector<int32_t> rows = {0};
    for (const auto& [which, length] : parts) {
      pieces.push_back({&states[which], std::span(tokens).first(length)});
      rows[0] += static_cast<int32_t>(length);
    }
    rows[0] -= 1;
    const Tensor logits = e->logits(e->step(pieces), rows);
    std::vector<float> host(static_cast<size_t>(logits.size()));
    e->backend().read(logits, std::as_writable_bytes(std::span(host)));
    return host;
  };
  step({{0, 1}, {1, 1}, {2, 40}});
  const auto before = programs_compiled(*e);
  const auto got = step({{3, 33}, {1, 1}, {2, 1}, {0, 1}, {4, 1}});
  EXPECT_EQ(programs_compiled(*e), before);
  EXPECT_TRUE(same_numbers(got, step({{5, 1}})));  // the same token in a fresh state
}

}  // namespace
}  // namespace adder::testing
