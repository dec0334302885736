// Requests that a backend's decode loop takes, run in it or step by step.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "engine/engine_testing.h"
#include "engine/generator.h"

namespace adder::testing {

// Different lengths, options and ends. longest: tokens of the last one, at least 7.
inline std::vector<GenerationRequest> mixed_requests(int64_t longest) {
  std::vector<GenerationRequest> all(3, greedy(random_ids(1, 5), 7));
  all[1] = greedy(random_ids(2, 9), 5);
  all[1].sampling = {.temperature = 1.3f,
                     .top_k = 20,
                     .top_p = 0.9f,
                     .repeat_penalty = 1.4f,
                     .repeat_last_n = 6,
                     .seed = 77};
  all[2] = greedy(random_ids(3, 1), longest);
  all[2].sampling = {.temperature = 2.0f, .top_p = 1.0f, .min_p = 0.02f, .seed = ~uint64_t{0}};
  return all;
}

struct DecodeOutcome {
  std::vector<GenerationResult> results;
  std::vector<Conversation> conversations;
  std::vector<std::vector<float>> states;
};

// Asking for logprobs enforces single steps. `recent`: what conversations have had before.
inline DecodeOutcome run_requests(Engine& engine, std::vector<GenerationRequest> all,
                                  bool step_by_step, const std::vector<int32_t>& recent = {}) {
  DecodeOutcome out;
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
  out.results = generate(engine, all);
  for (Conversation& c : out.conversations) {
    out.states.push_back(state_values(engine, c.state));
    c.state = StateHandle();
  }
  return out;
}

// same: of two states.
template <typename Same>
void expect_same_outcome(const DecodeOutcome& got, const DecodeOutcome& want, Same&& same) {
  for (size_t i = 0; i < want.results.size(); ++i) {
    EXPECT_EQ(got.results[i].tokens, want.results[i].tokens) << i;
    EXPECT_EQ(got.results[i].finish, want.results[i].finish) << i;
    EXPECT_EQ(got.conversations[i].length, want.conversations[i].length) << i;
    EXPECT_EQ(got.conversations[i].token_hash, want.conversations[i].token_hash) << i;
    EXPECT_EQ(got.conversations[i].recent, want.conversations[i].recent) << i;
    EXPECT_TRUE(same(got.states[i], want.states[i])) << i;
  }
}

}  // namespace adder::testing
