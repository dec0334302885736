// Answers: they parse, have OpenAI's fields, and carry any text.
#include "server/openai_response.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/logprob_track.h"

namespace adder {
namespace {

AnswerHead head(bool chat) {
  return {chat ? "chatcmpl-1" : "cmpl-1", 1700000000, "a \"model\"", chat};
}

RequestUsage usage() {
  RequestUsage u;
  u.prompt_tokens = 10;
  u.cached_tokens = 4;
  u.completion_tokens = 5;
  u.prefill_s = 0.5;
  u.decode_s = 2;
  return u;
}

// The JSON of one event.
Json event(std::string_view text) {
  EXPECT_TRUE(text.starts_with("data: ")) << text;
  EXPECT_TRUE(text.ends_with("}\n\n")) << text;
  EXPECT_EQ(text.find('\n'), text.size() - 2) << text;
  return Json::parse(text.substr(6));
}

SpelledToken token(std::string bytes, float logprob = -0.5f) {
  return {{bytes, logprob}, {{bytes, logprob}, {"other", -2.0f}}};
}

TEST(AnswerBody, IsACompletion) {
  std::vector<AnswerChoice> choices(2);
  choices[0].text = "tab\t\"quote\" \xc3\xa9";
  choices[1].finish = FinishReason::kLength;
  const Json body = Json::parse(answer_body(head(false), choices, usage()));
  EXPECT_EQ(body["id"], "cmpl-1");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "a \"model\"");
  EXPECT_EQ(body["choices"][0]["text"], choices[0].text);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["total_tokens"], 15);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(body["timings"]["prefill_tok_s"], 12.0);
  EXPECT_EQ(body["timings"]["decode_tok_s"], 2.0);
}

TEST(AnswerBody, IsAChatCompletion) {
  std::vector<AnswerChoice> choices(1);
  choices[0].text = "hello";
  const Json body = Json::parse(answer_body(head(true), choices, usage()));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"],
            (Json{{"role", "assistant"}, {"content", "hello"}, {"refusal", nullptr}}));
}

TEST(AnswerBody, MakesBytesThatAreNoTextReplacementCharacters) {
  std::vector<AnswerChoice> choices(1);
  choices[0].text = "a\xff";
  const Json body = Json::parse(answer_body(head(false), choices, usage()));
  EXPECT_EQ(body["choices"][0]["text"], "a\xef\xbf\xbd");
}

TEST(Chunks, HaveOpenAisShapes) {
  ChunkWriter chat(head(true), true);
  const Json role = event(chat.role(1));
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["index"], 1);
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role["usage"].is_null() && role.contains("usage"));
  const Json text = event(chat.text(0, "x"));
  EXPECT_EQ(text["choices"][0]["delta"], (Json{{"content", "x"}}));
  EXPECT_TRUE(text["choices"][0]["finish_reason"].is_null());
  const Json end = event(chat.finish(0, FinishReason::kLength));
  EXPECT_EQ(end["choices"][0]["delta"], Json::object());
  EXPECT_EQ(end["choices"][0]["finish_reason"], "length");
  const Json last = event(chat.usage(usage()));
  EXPECT_EQ(last["choices"], Json::array());
  EXPECT_EQ(last["usage"]["completion_tokens"], 5);
  EXPECT_EQ(event(chat.error(ApiError(503, "going \"down\"")))["error"]["message"],
            "going \"down\"");

  ChunkWriter plain(head(false), false);
  EXPECT_FALSE(event(plain.text(0, "x")).contains("usage"));
  EXPECT_EQ(event(plain.text(2, "x"))["choices"][0]["text"], "x");
  EXPECT_EQ(event(plain.finish(0, FinishReason::kStop))["choices"][0]["text"], "");
}

TEST(Chunks, CarryEveryCharacter) {
  ChunkWriter writer(head(false), false);
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "\xe2\x80\xa8\xf0\x9f\x98\x80";
  EXPECT_EQ(event(writer.text(0, text))["choices"][0]["text"], text);
}

TEST(Logprobs, OfCompletionsHaveOffsetsInCharacters) {
  const std::vector<SpelledToken> tokens = {token("h\xc3\xa9"), token("\xe2"),
                                            token("\x82\xac", -1),
                                            token("x", -std::numeric_limits<float>::infinity())};
  int64_t offset = 3;
  const Json json = Json::parse(completion_logprobs(tokens, offset));
  EXPECT_EQ(json["tokens"], (Json{"h\xc3\xa9", "bytes:\\xe2", "bytes:\\x82\\xac", "x"}));
  EXPECT_EQ(json["token_logprobs"], (Json{-0.5, -0.5, -1.0, -9999.0}));
  EXPECT_EQ(json["text_offset"], (Json{3, 5, 6, 6}));
  EXPECT_EQ(json["top_logprobs"][0], (Json{{"h\xc3\xa9", -0.5}, {"other", -2.0}}));
  EXPECT_EQ(offset, 7);
}

TEST(Logprobs, OfChatsHaveBytes) {
  const std::vector<SpelledToken> tokens = {token("\xc3\xa9")};
  const Json json = Json::parse(chat_logprobs(tokens));
  EXPECT_TRUE(json["refusal"].is_null());
  const Json& entry = json["content"][0];
  EXPECT_EQ(entry["token"], "\xc3\xa9");
  EXPECT_EQ(entry["bytes"], (Json{0xc3, 0xa9}));
  EXPECT_EQ(entry["top_logprobs"].size(), 2u);
  EXPECT_EQ(entry["top_logprobs"][1]["token"], "other");
}

std::vector<std::string> spellings(const std::vector<SpelledToken>& tokens) {
  std::vector<std::string> out;
  for (const SpelledToken& t : tokens) out.push_back(t.chosen.bytes);
  return out;
}

TEST(LogprobTrack, ReleasesTokensWithTheirText) {
  LogprobTrack track;
  track.add(token("a"));
  EXPECT_EQ(spellings(track.release("a")), (std::vector<std::string>{"a"}));
  track.add(token("\xc3"));
  EXPECT_TRUE(track.release("").empty());
  track.add(token("\xa9."));
  EXPECT_EQ(spellings(track.release("\xc3\xa9")), (std::vector<std::string>{"\xc3", "\xa9."}));
  EXPECT_TRUE(track.release(".").empty());
  EXPECT_TRUE(track.finish(FinishReason::kLength).empty());
}

TEST(LogprobTrack, KeepsTheTokensOfAStopStringBack) {
  LogprobTrack track;
  track.add(token("ab"));
  EXPECT_EQ(track.release("a").size(), 1u);  // "b" may begin a stop string
  track.add(token("c"));
  LogprobTrack stopped = track;
  EXPECT_TRUE(stopped.finish(FinishReason::kStop).empty());
  EXPECT_EQ(spellings(track.release("bc")), (std::vector<std::string>{"c"}));
}

TEST(LogprobTrack, ReleasesEverythingOnceBytesAreNoLongerText) {
  LogprobTrack track;
  track.add(token("\xff"));
  track.add(token("a"));
  EXPECT_EQ(track.release("\xef\xbf\xbd").size(), 2u);
  track.add(token("b"));
  EXPECT_EQ(track.finish(FinishReason::kStop).size(), 1u);
}

}  // namespace
}  // namespace adder
