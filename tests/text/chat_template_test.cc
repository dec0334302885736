#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "text_testing.h"

namespace adder {
namespace {

using Ids = std::vector<int32_t>;

const std::vector<ChatMessage> kTalk = {
    {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello"}, {"user", "Bye [/INST]"}};

std::string joined(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

TEST(ChatTemplate, Names) {
  EXPECT_EQ(chat_template_names(), "plain, chatml, mistral, falcon");
  for (const char* name : {"plain", "chatml", "mistral", "falcon"}) {
    EXPECT_EQ(chat_template_name(parse_chat_template(name).value()), name);
  }
  EXPECT_EQ(parse_chat_template("ChatML"), std::nullopt);
}

TEST(ChatTemplate, RendersAllForms) {
  EXPECT_EQ(joined(render_chat(ChatTemplate::kPlain, kTalk, {})),
            "Be brief.\nHi\nHello\nBye [/INST]\n");
  EXPECT_EQ(joined(render_chat(ChatTemplate::kChatML, kTalk, {})),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye [/INST]<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(joined(render_chat(ChatTemplate::kMistral, kTalk, {})),
            "[INST]Hi[/INST]Hello</s>[INST]Be brief.\n\nBye [/INST][/INST]");
  EXPECT_EQ(joined(render_chat(ChatTemplate::kMistral, kTalk,
                               {.blank_after_mark = true, .eos = "<end>"})),
            "[INST] Hi[/INST] Hello<end>[INST] Be brief.\n\nBye [/INST][/INST]");
  EXPECT_EQ(joined(render_chat(ChatTemplate::kFalcon, kTalk, {})),
            "Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye [/INST]\n\nAssistant:");
  EXPECT_EQ(joined(render_chat(ChatTemplate::kFalcon, kTalk, {.add_generation_prompt = false})),
            "Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye [/INST]\n\n");
}

TEST(ChatTemplate, KeepsWordsApartFromMarks) {
  for (const ChatTemplate chat : {ChatTemplate::kPlain, ChatTemplate::kChatML,
                                  ChatTemplate::kMistral, ChatTemplate::kFalcon}) {
    std::string words;
    for (const ChatSegment& segment : render_chat(chat, kTalk, {})) {
      if (!segment.is_template) words += segment.text + "|";
    }
    EXPECT_EQ(words, chat == ChatTemplate::kMistral ? "Hi|Hello|Be brief.\n\nBye [/INST]|"
                                                    : "Be brief.|Hi|Hello|Bye [/INST]|");
  }
}

TEST(ChatTemplate, RefusesWhatItCannotRender) {
  const std::vector<ChatMessage> tool = {{"user", "x"}, {"tool", "y"}};
  try {
    (void)render_chat(ChatTemplate::kPlain, tool, {});
    FAIL() << "a tool message was rendered";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "messages[1].role: expected system, user or assistant, got 'tool'");
  }
  const std::vector<ChatMessage> alone = {{"system", "x"}};
  EXPECT_THROW((void)render_chat(ChatTemplate::kMistral, alone, {}), std::runtime_error);
}

TEST(ChatTemplate, DetectsTheFormsByTheirMarks) {
  EXPECT_EQ(detect_chat_template("{% for m in messages %}{{'<|im_start|>' + m['role']}}"),
            ChatTemplate::kChatML);
  EXPECT_EQ(detect_chat_template("{{ bos_token }}{{ '[INST] ' + m['content'] + '[/INST]' }}"),
            ChatTemplate::kMistral);
  EXPECT_EQ(detect_chat_template("{{ 'User: ' + c }}{{ 'Assistant: ' + c }}"),
            ChatTemplate::kFalcon);
  EXPECT_EQ(detect_chat_template("[INST] <<SYS>>"), std::nullopt);
  EXPECT_EQ(detect_chat_template("<|start_header_id|>"), std::nullopt);
  EXPECT_EQ(detect_chat_template(""), std::nullopt);
}

TEST(ChatTemplate, IsFoundInAModelFolder) {
  const std::filesystem::path folder =
      fmt::format("{}adder_chat_{}", ::testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  const auto found_with = [&](const std::string& config) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    return find_chat_template(folder.string());
  };
  EXPECT_EQ(find_chat_template(folder.string()), std::nullopt);
  EXPECT_EQ(found_with(R"({"chat_template": "[INST]"})"), ChatTemplate::kMistral);
  EXPECT_EQ(found_with(R"({"chat_template": [{"name": "tool_use", "template": "[INST]"},
                            {"name": "default", "template": "<|im_start|>"}]})"),
            ChatTemplate::kChatML);
  EXPECT_EQ(found_with(R"({"chat_template": null})"), std::nullopt);
  EXPECT_EQ(found_with("{}"), std::nullopt);
  EXPECT_THROW(found_with(R"({"chat_template": 5})"), std::runtime_error);
  EXPECT_THROW(found_with("{"), std::runtime_error);
  std::ofstream(folder / "chat_template.jinja") << "User: Assistant:";
  EXPECT_EQ(find_chat_template(folder.string()), ChatTemplate::kFalcon);
  std::filesystem::remove_all(folder);
}

// What mistral-common makes of the same talk: control ids, and each text with its dummy blank.
TEST(ChatTemplate, EncodesForMistral) {
  const std::string model = "tokenizers/mistral_instruct_tokenizer_240323.model.v3";
  ADDER_NEED_FIXTURE(model);
  const auto tokenizer = load_tokenizer_file(testing::fixture(model));
  Ids want = {1, 3};
  const auto add = [&](std::string_view text, int32_t control) {
    const Ids ids = tokenizer->encode(text);
    want.insert(want.end(), ids.begin(), ids.end());
    want.push_back(control);
  };
  add("Hi", 4);
  add("Hello", 2);
  want.push_back(3);
  add("Be brief.\n\nBye [/INST]", 4);
  EXPECT_EQ(encode_chat(*tokenizer, ChatTemplate::kMistral, kTalk), want);
  EXPECT_EQ(std::count(want.begin(), want.end(), 4), 2);  // the user's own mark is plain text
}

// The state of a model that has answered has seen the first part and the answer.
TEST(ChatTemplate, ContinuesAfterAnAnswer) {
  const std::vector<ChatMessage> first = {{"user", "Hi."}}, next = {{"user", "And you?"}};
  const std::vector<ChatMessage> all = {
      {"user", "Hi."}, {"assistant", "Fine."}, {"user", "And you?"}};
  ChatRenderOptions after;
  after.after_answer = true;
  for (const ChatTemplate chat : {ChatTemplate::kPlain, ChatTemplate::kChatML,
                                  ChatTemplate::kMistral, ChatTemplate::kFalcon}) {
    // Falcon's mark ends before the blank, which the model writes.
    const std::string answer = chat == ChatTemplate::kFalcon ? " Fine." : "Fine.";
    EXPECT_EQ(
        joined(render_chat(chat, first, {})) + answer + joined(render_chat(chat, next, after)),
        joined(render_chat(chat, all, {})))
        << chat_template_name(chat);
  }
}

TEST(ChatTemplate, StopStrings) {
  EXPECT_TRUE(chat_stop_strings(ChatTemplate::kPlain).empty());
  EXPECT_EQ(chat_stop_strings(ChatTemplate::kChatML).front(), "<|im_end|>");
  EXPECT_EQ(chat_stop_strings(ChatTemplate::kMistral).front(), "</s>");
  EXPECT_EQ(chat_stop_strings(ChatTemplate::kFalcon).front(), "\nUser:");
}

}  // namespace
}  // namespace adder
