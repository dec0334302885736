// Bodies of OpenAI's API as what the engine needs. Pure functions: JSON text in, structs out.
//
// Fields that OpenAI documents and that change nothing here are ignored, and so are fields that
// nobody documents, because clients send extras. Fields that ask for what Adder cannot do are an
// ApiError(400) that names them, as is every wrong type and every number out of range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "engine/logit_editor.h"
#include "text/chat_template.h"

namespace adder {

// What the server allows, and what it is called.
struct ApiLimits {
  std::string model;                 // its id; "model" in a request must be this or an alias
  std::vector<std::string> aliases;  // may be empty
  int64_t max_tokens = 4096;         // of an answer
  int64_t max_choices = 16;          // answers to one prompt: each needs a slot
  int64_t max_prompts = 272;         // in one request: each takes a place among the waiting ones
  int64_t vocab_rows = 0;            // ids in prompts are below this
  int64_t vocab_limit = 0;           // ids that can be generated are below this
  double timeout_s = 600;            // for a whole request
};

// How an answer must be formed.
enum class AnswerForm { kText, kJsonObject, kJsonSchema, kGrammar };

// What both endpoints share.
struct GenerationOptions {
  int64_t max_tokens = 16;
  int n = 1;
  bool stream = false, include_usage = false;
  SamplingOptions sampling;  // without the seed
  std::optional<uint64_t> seed;
  TokenPenalties penalties;
  std::vector<std::string> stop;
  bool want_logprobs = false;
  int top_logprobs = 0;
  AnswerForm form = AnswerForm::kText;
  std::string form_text;  // the schema or the grammar
  // Adder's own.
  bool ignore_eos = false;
  std::string session;  // empty: none
  int priority = 0;
  double timeout_s = 0;
  bool cache = true;
};

// A text or ids.
struct PromptInput {
  std::string text;
  std::vector<int32_t> ids;  // empty: `text`
};

struct CompletionRequest {
  GenerationOptions options;
  std::vector<PromptInput> prompts;
  bool echo = false;
};

struct ChatRequest {
  GenerationOptions options;
  std::vector<ChatMessage> messages;  // "developer" has become "system"
};

struct EmbeddingRequest {
  std::vector<PromptInput> inputs;
  bool last = false;    // pooling: the last position instead of the mean
  bool base64 = false;  // encoding_format
};

// {"content": text} or {"messages": [...]}, with "add_special" (true unless given for messages).
struct TokenizeRequest {
  std::string content;
  std::vector<ChatMessage> messages;
  bool is_chat = false;
  bool add_special = false;
};

CompletionRequest parse_completion_request(std::string_view body, const ApiLimits& limits);
ChatRequest parse_chat_request(std::string_view body, const ApiLimits& limits);
EmbeddingRequest parse_embedding_request(std::string_view body, const ApiLimits& limits);
TokenizeRequest parse_tokenize_request(std::string_view body);
// {"tokens": [...]}
std::vector<int32_t> parse_detokenize_request(std::string_view body, int64_t vocab);

// {"id"?: text}; empty when there is none.
std::string parse_session_id(std::string_view body);
// {"tokens": k}, at least 1.
int64_t parse_rollback(std::string_view body);

// Throws ApiError(404) with the code model_not_found.
void check_model(const std::string& name, const ApiLimits& limits);

}  // namespace adder
