#include "server/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/api_error.h"
#include "server/json.h"
#include "server/openai_options.h"

namespace adder {
namespace {

constexpr size_t kMaxPrompts = 128;
constexpr size_t kMaxMessages = 100'000;  // a server of endless conversations sees long ones

void check_model_field(const Json& body, const ApiLimits& limits) {
  if (const Json* model = find_field(body, "model"))
    check_model(read_string(*model, "model"), limits);
}

bool is_id_list(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number();
}

PromptInput read_prompt(const Json& value, const std::string& param, const ApiLimits& limits) {
  if (value.is_string()) return {value.get<std::string>(), {}};
  if (!value.is_array()) {
    bad_field(param, "expected a string or an array of token ids, got {}", describe(value));
  }
  return {"", read_token_ids(value, param, limits.vocab_rows)};
}

// A string, ids, or an array of either.
std::vector<PromptInput> read_prompts(const Json& value, const std::string& param,
                                      const ApiLimits& limits) {
  std::vector<PromptInput> prompts;
  if (!value.is_array() || is_id_list(value)) {
    prompts.push_back(read_prompt(value, param, limits));
    return prompts;
  }
  if (value.empty() || value.size() > kMaxPrompts) {
    bad_field(param, "expected 1 to {} entries, got {}", kMaxPrompts, value.size());
  }
  for (size_t i = 0; i < value.size(); ++i) {
    prompts.push_back(read_prompt(value[i], fmt::format("{}[{}]", param, i), limits));
  }
  return prompts;
}

// A string or text parts, which are one text.
std::string read_content(const Json& message, const std::string& param) {
  const Json* content = find_field(message, "content");
  if (content == nullptr) bad_field(param, "expected a string or an array of parts, got null");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    bad_field(param, "expected a string or an array of parts, got {}", describe(*content));
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    const Json& part = read_object((*content)[i], at);
    const Json* type = find_field(part, "type");
    if (type == nullptr || !type->is_string() || *type != "text") {
      bad_field(at + ".type", "expected 'text', the only kind of part this model takes, got {}",
                type == nullptr ? "null" : describe(*type));
    }
    const Json* words = find_field(part, "text");
    if (words == nullptr) bad_field(at + ".text", "expected a string, got null");
    text += read_string(*words, at + ".text");
  }
  return text;
}

ChatMessage read_message(const Json& message, const std::string& param) {
  read_object(message, param);
  const Json* role_field = find_field(message, "role");
  if (role_field == nullptr) bad_field(param + ".role", "expected a string, got null");
  std::string role = read_string(*role_field, param + ".role");
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant") {
    bad_field(param + ".role", "expected system, developer, user or assistant, got {}",
              describe(*role_field));
  }
  for (const char* unsupported : {"tool_calls", "function_call", "audio"}) {
    const Json* value = find_field(message, unsupported);
    if (value != nullptr && !value->empty()) {
      bad_field(fmt::format("{}.{}", param, unsupported), "not supported by this server");
    }
  }
  return {std::move(role), read_content(message, param + ".content")};
}

std::vector<ChatMessage> read_messages(const Json& body) {
  const Json* list = find_field(body, "messages");
  if (list == nullptr) bad_field("messages", "expected an array of messages, got none");
  read_array(*list, "messages");
  if (list->empty() || list->size() > kMaxMessages) {
    bad_field("messages", "expected 1 to {} messages, got {}", kMaxMessages, list->size());
  }
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    messages.push_back(read_message((*list)[i], fmt::format("messages[{}]", i)));
  }
  return messages;
}

void read_completion_logprobs(const Json& body, GenerationOptions& options) {
  const Json* logprobs = find_field(body, "logprobs");
  if (logprobs == nullptr) return;
  options.want_logprobs = true;
  options.top_logprobs = static_cast<int>(read_integer(*logprobs, "logprobs", 0, 5));
}

void read_chat_logprobs(const Json& body, GenerationOptions& options) {
  const Json* logprobs = find_field(body, "logprobs");
  const Json* top = find_field(body, "top_logprobs");
  options.want_logprobs = logprobs != nullptr && read_bool(*logprobs, "logprobs");
  if (top == nullptr) return;
  options.top_logprobs = static_cast<int>(read_integer(*top, "top_logprobs", 0, 20));
  if (!options.want_logprobs) bad_field("top_logprobs", "expected logprobs to be true beside it");
}

// `best_of` answers are generated and the best returned: only best_of = n needs no ranking.
void check_best_of(const Json& body, int n) {
  const Json* best_of = find_field(body, "best_of");
  if (best_of == nullptr) return;
  if (read_integer(*best_of, "best_of", 1, std::numeric_limits<int32_t>::max()) != n) {
    bad_field("best_of", "expected the value of n ({}), got {}: answers are not ranked", n,
              describe(*best_of));
  }
}

void check_text_only(const Json& body) {
  const Json* modalities = find_field(body, "modalities");
  if (modalities == nullptr) return;
  for (const Json& modality : read_array(*modalities, "modalities")) {
    if (modality != "text")
      bad_field("modalities", "expected [\"text\"], got {}", describe(modality));
  }
}

}  // namespace

void check_model(const std::string& name, const ApiLimits& limits) {
  const auto& others = limits.aliases;
  if (name == limits.model || std::find(others.begin(), others.end(), name) != others.end()) return;
  throw ApiError(404,
                 fmt::format("model: expected '{}', got {}", limits.model, describe(Json(name))),
                 "model", "model_not_found");
}

CompletionRequest parse_completion_request(std::string_view text, const ApiLimits& limits) {
  const Json body = parse_body(text);
  check_model_field(body, limits);
  refuse_unsupported(body, {"suffix", "tools", "functions", "audio", "prediction"});

  CompletionRequest request;
  request.options = read_generation_options(body, text, limits);
  GenerationOptions& options = request.options;
  options.max_tokens =
      read_max_tokens(body, {"max_completion_tokens", "max_tokens"}, 0, 16, limits);
  read_completion_logprobs(body, options);
  check_best_of(body, options.n);
  if (const Json* echo = find_field(body, "echo")) request.echo = read_bool(*echo, "echo");
  if (request.echo && options.want_logprobs) {
    bad_field("logprobs", "expected none beside echo: those of a prompt are not computed");
  }

  const Json* prompt = find_field(body, "prompt");
  if (prompt == nullptr) bad_field("prompt", "expected a string or token ids, got none");
  request.prompts = read_prompts(*prompt, "prompt", limits);
  const size_t count = request.prompts.size();
  if (static_cast<int64_t>(count) > limits.max_prompts) {
    bad_field("prompt", "expected at most {} prompts, which is what can run and wait here, got {}",
              limits.max_prompts, count);
  }
  if (count > 1 && !options.session.empty()) {
    bad_field("session", "expected 1 prompt beside it, got {}", count);
  }
  return request;
}

ChatRequest parse_chat_request(std::string_view text, const ApiLimits& limits) {
  const Json body = parse_body(text);
  check_model_field(body, limits);
  refuse_unsupported(body,
                     {"tools", "functions", "audio", "prediction", "suffix", "web_search_options"});
  refuse_tool_choice(body, "tool_choice");
  refuse_tool_choice(body, "function_call");
  check_text_only(body);

  ChatRequest request;
  request.options = read_generation_options(body, text, limits);
  request.options.max_tokens =
      read_max_tokens(body, {"max_completion_tokens", "max_tokens"}, 1, limits.max_tokens, limits);
  read_chat_logprobs(body, request.options);
  check_best_of(body, request.options.n);
  request.messages = read_messages(body);
  return request;
}

EmbeddingRequest parse_embedding_request(std::string_view text, const ApiLimits& limits) {
  const Json body = parse_body(text);
  check_model_field(body, limits);
  EmbeddingRequest request;
  const Json* input = find_field(body, "input");
  if (input == nullptr) bad_field("input", "expected a string or token ids, got none");
  request.inputs = read_prompts(*input, "input", limits);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const PromptInput& entry = request.inputs[i];
    if (entry.ids.empty() && entry.text.empty()) {
      bad_field("input", "expected text, got an empty string as entry {}", i);
    }
  }
  if (const Json* dimensions = find_field(body, "dimensions")) {
    bad_field("dimensions", "not supported: embeddings have the model's width, got {}",
              describe(*dimensions));
  }
  if (const Json* pooling = find_field(body, "pooling")) {
    const std::string& name = read_string(*pooling, "pooling");
    if (name != "mean" && name != "last") {
      bad_field("pooling", "expected mean or last, got {}", describe(*pooling));
    }
    request.last = name == "last";
  }
  if (const Json* format = find_field(body, "encoding_format")) {
    const std::string& name = read_string(*format, "encoding_format");
    if (name != "float" && name != "base64") {
      bad_field("encoding_format", "expected float or base64, got {}", describe(*format));
    }
    request.base64 = name == "base64";
  }
  return request;
}

TokenizeRequest parse_tokenize_request(std::string_view text) {
  const Json body = parse_body(text);
  TokenizeRequest request;
  const Json* content = find_field(body, "content");
  request.is_chat = find_field(body, "messages") != nullptr;
  if (request.is_chat == (content != nullptr)) {
    bad_field("content", "expected either content or messages");
  }
  if (request.is_chat) {
    request.messages = read_messages(body);
  } else {
    request.content = read_string(*content, "content");
  }
  request.add_special = request.is_chat;
  if (const Json* add = find_field(body, "add_special")) {
    request.add_special = read_bool(*add, "add_special");
  }
  return request;
}

std::vector<int32_t> parse_detokenize_request(std::string_view text, int64_t vocab) {
  const Json body = parse_body(text);
  const Json* tokens = find_field(body, "tokens");
  if (tokens == nullptr) bad_field("tokens", "expected an array of ids, got none");
  if (read_array(*tokens, "tokens").empty()) return {};
  return read_token_ids(*tokens, "tokens", vocab);
}

std::string parse_session_id(std::string_view text) {
  const Json body = parse_body(text);
  const Json* id = find_field(body, "id");
  return id == nullptr ? std::string() : read_string(*id, "id");
}

int64_t parse_rollback(std::string_view text) {
  const Json body = parse_body(text);
  const Json* tokens = find_field(body, "tokens");
  if (tokens == nullptr) bad_field("tokens", "expected an integer, got none");
  return read_integer(*tokens, "tokens", 1, std::numeric_limits<int64_t>::max());
}

}  // namespace adder
