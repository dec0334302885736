// A conversation of messages on top of a conversation of tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "text/chat_template.h"

namespace adder {

// The template of that name; for an empty name the model's own, or "plain" when it has none that is
// known. Throws Error(kBadInput) for an unknown name.
ChatTemplate choose_chat_template(const Engine& engine, std::string_view name);

// What ends the assistant's message, added to a request: control tokens as ids, the rest as text.
void add_chat_stops(const Tokenizer& tokenizer, ChatTemplate chat, GenerationRequest& request);

// True where a template puts a blank in front of the answer, which the model writes itself: it does
// not belong to the message.
bool answers_begin_with_blank(ChatTemplate chat);

class ChatSession {
 public:
  // template_name: as for choose_chat_template().
  // Throws Error(kBadInput) for an unknown name or a model without a tokenizer.
  ChatSession(Engine& engine, std::string_view template_name, std::string system);

  // Sends a user's message and generates the answer with the options of `request` (its prompt and
  // conversation are set here). Messages that are in the state already are not processed again.
  GenerationResult ask(std::string message, GenerationRequest request);

  void reset();
  std::string_view template_name() const { return chat_template_name(template_); }

 private:
  Engine& engine_;
  ChatTemplate template_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  Conversation conversation_;
  std::string in_state_;  // the text that the state has seen, answers as they were generated
};

}  // namespace adder
