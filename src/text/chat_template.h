// Chat templates: how the messages of a conversation become the text that a model was trained on.
//
// Checkpoints carry them as Jinja programs. Four forms cover the models Adder runs; they are
// recognised by their marks and rendered here, so that no program from a checkpoint is run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace adder {

enum class ChatTemplate : uint8_t {
  kPlain,    // the contents, with a line feed between them: for models without a template
  kChatML,   // <|im_start|>role LF content<|im_end|> LF      (Falcon-Mamba-instruct,
             // Zamba2-instruct)
  kMistral,  // [INST]content[/INST]content</s>               (Codestral; the system text is put in
             //                                                front of the last user's content)
  kFalcon,   // User: content LF LF Assistant: content LF LF  (Falcon-7B-instruct; system text bare)
};

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatSegment {
  std::string text;
  bool is_template = false;  // false: somebody's words, in which control tokens do not count
};

// "plain", "chatml", "mistral", "falcon"
std::string_view chat_template_name(ChatTemplate chat);
std::optional<ChatTemplate> parse_chat_template(std::string_view name);
std::string chat_template_names();  // "plain, chatml, mistral, falcon", for messages

// From the Jinja source: "<|im_start|>" is ChatML; "[INST]" is Mistral, unless Llama-2's "<<SYS>>"
// or the later "[SYSTEM_PROMPT]" is there too; "User:" with "Assistant:" is Falcon. Nothing for any
// other.
std::optional<ChatTemplate> detect_chat_template(std::string_view jinja);

// The template's source in a model folder, wherever it is kept; nothing when there is none.
std::optional<std::string> read_chat_template(const std::string& directory);

// Of a model folder: chat_template.jinja, else chat_template in tokenizer_config.json (a text, or
// a list of {name, template} with one named "default"). Nothing when there is none or when it is
// none of the four. Throws Error(kBadInput) for a malformed tokenizer_config.json.
std::optional<ChatTemplate> find_chat_template(const std::string& directory);

struct ChatRenderOptions {
  bool add_generation_prompt = true;  // end with what introduces the assistant's next message
  // Begin with what ends the assistant's message that the model has just generated, for messages
  // that go on from there.
  bool after_answer = false;
  bool blank_after_mark = false;  // Mistral: "[INST] x", where the tokenizer adds no blank
  std::string eos = "</s>";       // Mistral: what ends the assistant's messages
};

// The segments in order; without the token that starts a text, which encode_parts' add_bos puts in
// front. Throws Error(kBadInput) naming the message when a role is not one of the three, or when
// Mistral's form has a system message but no user message.
std::vector<ChatSegment> render_chat(ChatTemplate chat, std::span<const ChatMessage> messages,
                                     const ChatRenderOptions& options);

// How this tokenizer's models spell the details above.
ChatRenderOptions chat_render_options(const Tokenizer& tokenizer);

// Rendered for this tokenizer and encoded, with bos where the tokenizer asks for it.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, ChatTemplate chat,
                                 std::span<const ChatMessage> messages,
                                 bool add_generation_prompt = true);

// What a model that has just answered is told next, when its state has seen all before: the end of
// its answer, the messages, and what introduces its next one. No bos.
std::vector<int32_t> encode_chat_continuation(const Tokenizer& tokenizer, ChatTemplate chat,
                                              std::span<const ChatMessage> messages);

// Texts that end the assistant's message besides the tokenizer's eos.
std::vector<std::string> chat_stop_strings(ChatTemplate chat);

}  // namespace adder
