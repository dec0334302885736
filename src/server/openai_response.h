// Answers in the shapes of OpenAI's API: whole bodies, chunks of a stream, log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "engine/scheduler.h"
#include "server/api_error.h"

namespace adder {

// What every part of an answer repeats.
struct AnswerHead {
  std::string id;       // "cmpl-..." or "chatcmpl-..."
  int64_t created = 0;  // Unix time, seconds
  std::string model;
  bool chat = false;
};

// A token's log-probability with the bytes that it stands for; they may be part of a character.
struct SpelledLogprob {
  std::string bytes;
  float logprob = 0;
};
struct SpelledToken {
  SpelledLogprob chosen;
  std::vector<SpelledLogprob> top;
};
SpelledToken spell(const Tokenizer& tokenizer, const TokenLogprobs& token);

// JSON of the "logprobs" of a choice. Bytes that are not UTF-8 are spelled "bytes:\xe2\x80".
// Completions: {tokens, token_logprobs, top_logprobs, text_offset}; offset: in characters, of the
// first token, and of what follows the last one afterwards.
std::string completion_logprobs(std::span<const SpelledToken> tokens, int64_t& offset);
// Chat: {content: [{token, logprob, bytes, top_logprobs}], refusal}.
std::string chat_logprobs(std::span<const SpelledToken> tokens);

struct AnswerChoice {
  std::string text;  // UTF-8, or made so
  FinishReason finish = FinishReason::kStop;
  std::string logprobs = "null";  // JSON
};

std::string usage_json(const RequestUsage& usage);
// Seconds and rates, as `adder run --json` has them.
std::string timings_json(const RequestUsage& usage);
std::string answer_body(const AnswerHead& head, std::span<const AnswerChoice> choices,
                        const RequestUsage& usage);

// Events of a stream ("data: {...}" and an empty line). What they return is valid until the next
// call. Cheap enough for every token of every client: only the changing parts are formatted.
class ChunkWriter {
 public:
  // with_usage: every chunk has "usage", null except in the last one.
  ChunkWriter(const AnswerHead& head, bool with_usage);

  std::string_view role(int choice);  // chat only: says that the assistant speaks
  std::string_view text(int choice, std::string_view text, std::string_view logprobs = "null");
  std::string_view finish(int choice, FinishReason reason, std::string_view logprobs = "null");
  std::string_view usage(const RequestUsage& usage);
  std::string_view error(const ApiError& error);
  static std::string_view done() { return "data: [DONE]\n\n"; }

 private:
  void begin(int choice);
  std::string_view close(std::string_view logprobs, std::string_view reason);

  bool chat_;
  std::string head_;  // up to the choices
  std::string tail_;  // from behind the choices
  std::string out_;
};

}  // namespace adder
