// A conversation of messages on top of a conversation of tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "text/chat_template.h"

namespace adder {

class ChatSession {
 public:
  // template_name: empty for the model's own, or "plain" when it has none that is known.
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
