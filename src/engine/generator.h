// From prompts to tokens: sampling options, stop conditions, streaming, several requests together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace adder {

class LogitEditor;  // engine/logit_editor.h

struct SamplingOptions {
  float temperature = 0.6f;  // 0: the most probable token
  int32_t top_k = 0;         // 0: all
  float top_p = 0.95f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  int32_t repeat_last_n = 64;  // how far back the penalty looks, prompt included
  uint64_t seed = 0;

  // Throws Error(kBadInput) naming the option that is out of range.
  void validate() const;
};

struct TokenLogprob {
  int32_t token;
  float logprob;  // natural logarithm, before temperature and filters
};

struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // most probable first
};

enum class FinishReason {
  kStop,       // end-of-text token or stop string
  kLength,     // max_tokens
  kCancelled,  // the caller's flag
};
std::string_view finish_reason_name(FinishReason reason);

// How many of a conversation's newest tokens are kept for the repeat penalty: the longest
// repeat_last_n that makes sense across requests.
inline constexpr size_t kRecentTokens = 1024;

// A sequence between two requests: its state and what the next token depends on.
struct Conversation {
  StateHandle state;            // empty: nothing has been processed
  int64_t length = 0;           // tokens in the state
  uint64_t token_hash = 0;      // chain over those tokens (core/random.h)
  std::vector<int32_t> recent;  // the newest of them, for the repeat penalty
  std::vector<float> logits;    // after the last of them (vocab_rows)
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // what follows `conversation`; empty only if that is not
  int64_t max_tokens = 128;     // 0: only process the prompt
  SamplingOptions sampling;
  std::vector<std::string> stop;     // needs a tokenizer; stays in a kept conversation's state
  std::vector<int32_t> stop_tokens;  // end like the model's own end-of-text token
  bool want_logprobs = false;
  int top_logprobs = 0;  // alternatives listed with each token when want_logprobs is set
  bool ignore_eos = false;
  // Continues this and leaves it advanced by prompt and answer. Null: a fresh sequence.
  Conversation* conversation = nullptr;
  // With a conversation: also processes the last token of the answer, which takes a step of its
  // own, and keeps the logits after it. False: the state lacks that token and there are no logits.
  bool finish_state = true;
  // Changes the logits before each token is chosen; logprobs are the model's own. Null: nothing.
  std::shared_ptr<LogitEditor> editor;
  // Whole UTF-8 characters as soon as they are certain. May be empty.
  std::function<void(std::string_view)> on_text;
  // Called after each block of the prompt with the tokens done so far. May be empty.
  std::function<void(int64_t done)> on_prefill;
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerationResult {
  std::vector<int32_t> tokens;  // without the end-of-text token
  std::string text;             // empty without a tokenizer; ends before a stop string
  FinishReason finish = FinishReason::kLength;
  std::vector<TokenLogprobs> logprobs;
  int64_t prompt_tokens = 0;  // length of the conversation before the answer
  int64_t cached_tokens = 0;  // of those, taken from the conversation's state
  double prefill_s = 0, decode_s = 0;
};

// Runs the requests together in packed steps, results in their order. A request's result has the
// same bits alone and in any company. Needs a free slot of the engine for each.
// Throws Error(kBadInput) for a bad request before anything is run.
std::vector<GenerationResult> generate(Engine& engine, std::span<const GenerationRequest> requests);
GenerationResult generate(Engine& engine, const GenerationRequest& request);

}  // namespace adder
