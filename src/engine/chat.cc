#include "engine/chat.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/gguf_tokenizer.h"

namespace adder {

ChatTemplate choose_chat_template(const Engine& engine, std::string_view name) {
  if (!name.empty()) {
    if (const auto known = parse_chat_template(name)) return *known;
    bad_input("template: expected one of {}, got '{}'", chat_template_names(), name);
  }
  if (const GgufMetadata* gguf = engine.checkpoint().gguf()) {
    return gguf_chat_template(*gguf).value_or(ChatTemplate::kPlain);
  }
  const std::string& directory = engine.checkpoint().directory();
  const auto found = directory.empty() ? std::nullopt : find_chat_template(directory);
  return found.value_or(ChatTemplate::kPlain);
}

void add_chat_stops(const Tokenizer& tokenizer, ChatTemplate chat, GenerationRequest& request) {
  for (const std::string& stop : chat_stop_strings(chat)) {
    const auto id = tokenizer.token_to_id(stop);
    if (id && tokenizer.is_special(*id)) {
      request.stop_tokens.push_back(*id);
    } else {
      request.stop.push_back(stop);
    }
  }
}

bool answers_begin_with_blank(ChatTemplate chat) {
  return chat == ChatTemplate::kMistral || chat == ChatTemplate::kFalcon;
}

ChatSession::ChatSession(Engine& engine, std::string_view template_name, std::string system)
    : engine_(engine),
      template_(choose_chat_template(engine, template_name)),
      system_(std::move(system)) {
  engine_.tokenizer();  // throws when there is none
  reset();
}

void ChatSession::reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
  conversation_ = Conversation();
  in_state_.clear();
}

GenerationResult ChatSession::ask(std::string message, GenerationRequest request) {
  const Tokenizer& tokenizer = engine_.tokenizer();
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", std::move(message)});
  const std::vector<ChatSegment> segments =
      render_chat(template_, messages, chat_render_options(tokenizer));
  std::string whole;
  for (const ChatSegment& segment : segments) whole += segment.text;

  // What the state has seen is skipped. Where the template rewrites earlier text (a system message
  // that moves along), everything is processed again.
  if (!whole.starts_with(in_state_)) {
    conversation_ = Conversation();
    in_state_.clear();
  }
  const bool fresh = in_state_.empty();
  size_t skip = in_state_.size();
  std::vector<TextPart> parts;
  for (const ChatSegment& segment : segments) {
    const size_t dropped = std::min(skip, segment.text.size());
    skip -= dropped;
    if (dropped == segment.text.size()) continue;
    parts.push_back({std::string_view(segment.text).substr(dropped), segment.is_template});
  }
  request.prompt = tokenizer.encode_parts(parts, fresh);
  request.conversation = &conversation_;
  add_chat_stops(tokenizer, template_, request);
  GenerationResult answer = generate(engine_, request);

  messages_ = std::move(messages);
  const bool blank = answers_begin_with_blank(template_);
  messages_.push_back(
      {"assistant", answer.text.substr(blank && answer.text.starts_with(' ') ? 1 : 0)});
  in_state_ = whole + answer.text;
  // The state has seen the stop string itself as well, which the next text does not repeat in the
  // same place; an answer that was cut off inside a character is not what the state has seen
  // either.
  std::string generated = tokenizer.decode(answer.tokens, true);
  if (generated != answer.text) {
    conversation_ = Conversation();
    in_state_.clear();
  }
  return answer;
}

}  // namespace adder
