#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "text/read_file.h"

namespace adder {
namespace {

constexpr std::pair<ChatTemplate, std::string_view> kNames[] = {
    {ChatTemplate::kPlain, "plain"},
    {ChatTemplate::kChatML, "chatml"},
    {ChatTemplate::kMistral, "mistral"},
    {ChatTemplate::kFalcon, "falcon"},
};

class Renderer {
 public:
  explicit Renderer(const ChatRenderOptions& options) : options_(options) {}

  void plain(std::span<const ChatMessage> messages) {
    for (size_t i = 0; i < messages.size(); ++i) {
      if (i > 0) mark("\n");
      words(messages[i].content);
    }
    if (options_.add_generation_prompt && !messages.empty()) mark("\n");
  }

  void chatml(std::span<const ChatMessage> messages) {
    for (const ChatMessage& message : messages) {
      mark("<|im_start|>" + message.role + "\n");
      words(message.content);
      mark("<|im_end|>\n");
    }
    if (options_.add_generation_prompt) mark("<|im_start|>assistant\n");
  }

  void mistral(std::span<const ChatMessage> messages) {
    std::string system;
    size_t last_user = messages.size();
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == "user") last_user = i;
      if (messages[i].role == "system") {
        if (!system.empty()) system += "\n\n";
        system += messages[i].content;
      }
    }
    ADDER_CHECK(system.empty() || last_user < messages.size(),
                "messages: expected a user message beside the system message, got none");
    const std::string_view blank = options_.blank_after_mark ? " " : "";
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == "user") {
        mark("[INST]");
        mark(blank);
        if (i == last_user && !system.empty()) words(system + "\n\n");
        words(messages[i].content);
        mark("[/INST]");
      } else if (messages[i].role == "assistant") {
        mark(blank);
        words(messages[i].content);
        mark(options_.eos);
      }
    }
  }

  void falcon(std::span<const ChatMessage> messages) {
    for (const ChatMessage& message : messages) {
      if (message.role == "user") mark("User: ");
      if (message.role == "assistant") mark("Assistant: ");
      words(message.content);
      mark("\n\n");
    }
    if (options_.add_generation_prompt) mark("Assistant:");
  }

  // The marks that stand behind the assistant's words above.
  void end_answer(ChatTemplate chat) {
    switch (chat) {
      case ChatTemplate::kPlain:
        mark("\n");
        break;
      case ChatTemplate::kChatML:
        mark("<|im_end|>\n");
        break;
      case ChatTemplate::kMistral:
        mark(options_.eos);
        break;
      case ChatTemplate::kFalcon:
        mark("\n\n");
        break;
    }
  }

  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  void mark(std::string_view text) { add(text, true); }
  void words(std::string_view text) { add(text, false); }
  void add(std::string_view text, bool is_template) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().is_template != is_template) {
      segments_.push_back({"", is_template});
    }
    segments_.back().text.append(text);
  }

  const ChatRenderOptions& options_;
  std::vector<ChatSegment> segments_;
};

// The template's source in tokenizer_config.json; nothing when there is none.
std::optional<std::string> configured_template(const std::filesystem::path& path) {
  const auto config = nlohmann::json::parse(read_json_config(path), nullptr, false);
  ADDER_CHECK(config.is_object(), "{}: expected a JSON object, got {}", path.string(),
              config.is_discarded() ? "malformed text" : config.type_name());
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  ADDER_CHECK(found->is_array(), "{}: chat_template: expected a text or a list, got {}",
              path.string(), found->type_name());
  for (const auto& entry : *found) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name"), source = entry.find("template");
    if (name != entry.end() && *name == "default" && source != entry.end() && source->is_string()) {
      return source->get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view chat_template_name(ChatTemplate chat) {
  for (const auto& [value, name] : kNames) {
    if (value == chat) return name;
  }
  fail(ErrorCode::kInternal, "chat template {} has no name", static_cast<int>(chat));
}

std::optional<ChatTemplate> parse_chat_template(std::string_view wanted) {
  for (const auto& [value, name] : kNames) {
    if (name == wanted) return value;
  }
  return std::nullopt;
}

std::string chat_template_names() {
  std::string names;
  for (const auto& entry : kNames) {
    if (!names.empty()) names += ", ";
    names += entry.second;
  }
  return names;
}

std::optional<ChatTemplate> detect_chat_template(std::string_view jinja) {
  const auto has = [jinja](std::string_view mark) {
    return jinja.find(mark) != std::string_view::npos;
  };
  if (has("<|im_start|>")) return ChatTemplate::kChatML;
  if (has("[INST]") && !has("<<SYS>>") && !has("[SYSTEM_PROMPT]")) return ChatTemplate::kMistral;
  if (has("User:") && has("Assistant:")) return ChatTemplate::kFalcon;
  return std::nullopt;
}

std::optional<std::string> read_chat_template(const std::string& directory) {
  const std::filesystem::path folder(directory);
  if (std::filesystem::exists(folder / "chat_template.jinja")) {
    return read_file(folder / "chat_template.jinja");
  }
  if (!std::filesystem::exists(folder / "tokenizer_config.json")) return std::nullopt;
  return configured_template(folder / "tokenizer_config.json");
}

std::optional<ChatTemplate> find_chat_template(const std::string& directory) {
  const auto source = read_chat_template(directory);
  return source ? detect_chat_template(*source) : std::nullopt;
}

std::vector<ChatSegment> render_chat(ChatTemplate chat, std::span<const ChatMessage> messages,
                                     const ChatRenderOptions& options) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    ADDER_CHECK(role == "system" || role == "user" || role == "assistant",
                "messages[{}].role: expected system, user or assistant, got '{}'", i, role);
  }
  Renderer renderer(options);
  if (options.after_answer) renderer.end_answer(chat);
  switch (chat) {
    case ChatTemplate::kPlain:
      renderer.plain(messages);
      break;
    case ChatTemplate::kChatML:
      renderer.chatml(messages);
      break;
    case ChatTemplate::kMistral:
      renderer.mistral(messages);
      break;
    case ChatTemplate::kFalcon:
      renderer.falcon(messages);
      break;
  }
  return renderer.take();
}

ChatRenderOptions chat_render_options(const Tokenizer& tokenizer) {
  ChatRenderOptions options;
  // Byte-level vocabularies were trained on "[INST]x"; the others on a blank behind the mark, which
  // most of their tokenizers put there themselves.
  options.blank_after_mark =
      tokenizer.strips_leading_space() && !tokenizer.adds_blank_after_special();
  if (tokenizer.eos_id()) options.eos = tokenizer.token_bytes(*tokenizer.eos_id());
  return options;
}

namespace {

std::vector<int32_t> encode_messages(const Tokenizer& tokenizer, ChatTemplate chat,
                                     std::span<const ChatMessage> messages,
                                     const ChatRenderOptions& options) {
  const std::vector<ChatSegment> segments = render_chat(chat, messages, options);
  std::vector<TextPart> parts;
  parts.reserve(segments.size());
  for (const ChatSegment& segment : segments) parts.push_back({segment.text, segment.is_template});
  return tokenizer.encode_parts(parts, !options.after_answer);
}

}  // namespace

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, ChatTemplate chat,
                                 std::span<const ChatMessage> messages,
                                 bool add_generation_prompt) {
  ChatRenderOptions options = chat_render_options(tokenizer);
  options.add_generation_prompt = add_generation_prompt;
  return encode_messages(tokenizer, chat, messages, options);
}

std::vector<int32_t> encode_chat_continuation(const Tokenizer& tokenizer, ChatTemplate chat,
                                              std::span<const ChatMessage> messages) {
  ChatRenderOptions options = chat_render_options(tokenizer);
  options.after_answer = true;
  return encode_messages(tokenizer, chat, messages, options);
}

std::vector<std::string> chat_stop_strings(ChatTemplate chat) {
  switch (chat) {
    case ChatTemplate::kPlain:
      break;
    case ChatTemplate::kChatML:
      return {"<|im_end|>", "<|im_start|>"};
    case ChatTemplate::kMistral:
      return {"</s>", "[INST]"};
    case ChatTemplate::kFalcon:
      return {"\nUser:"};
  }
  return {};
}

}  // namespace adder
