// Bodies of requests: what is read, what is refused, and how the refusal names the field.
#include "server/openai_request.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "server/api_testing.h"

namespace adder {
namespace {

using testing::api_error_of;

ApiLimits limits() {
  ApiLimits l;
  l.model = "demo";
  l.aliases = {"gpt-x"};
  l.max_tokens = 1000;
  l.max_choices = 8;
  l.vocab_rows = 300;
  l.vocab_limit = 256;
  l.timeout_s = 60;
  return l;
}

CompletionRequest completion(const std::string& body) {
  return parse_completion_request(body, limits());
}
ChatRequest chat(const std::string& body) {
  return parse_chat_request(body, limits());
}

// A completion with one more field.
CompletionRequest completion_with(const std::string& field) {
  return completion(R"({"prompt": "x", )" + field + "}");
}
ChatRequest chat_with(const std::string& field) {
  return chat(R"({"messages": [{"role": "user", "content": "x"}], )" + field + "}");
}

TEST(CompletionRequest, HasOpenAisDefaults) {
  const CompletionRequest r = completion(R"({"prompt": "Once"})");
  ASSERT_EQ(r.prompts.size(), 1u);
  EXPECT_EQ(r.prompts[0].text, "Once");
  EXPECT_TRUE(r.prompts[0].ids.empty());
  EXPECT_EQ(r.options.max_tokens, 16);
  EXPECT_EQ(r.options.n, 1);
  EXPECT_EQ(r.options.sampling.temperature, 1.0f);
  EXPECT_EQ(r.options.sampling.top_p, 1.0f);
  EXPECT_EQ(r.options.sampling.top_k, 0);
  EXPECT_EQ(r.options.sampling.repeat_penalty, 1.0f);
  EXPECT_FALSE(r.options.seed.has_value());
  EXPECT_FALSE(r.options.stream);
  EXPECT_FALSE(r.options.want_logprobs);
  EXPECT_FALSE(r.options.penalties.any());
  EXPECT_TRUE(r.options.cache);
  EXPECT_EQ(r.options.timeout_s, 60);
  EXPECT_FALSE(r.echo);
}

TEST(CompletionRequest, ReadsEveryOption) {
  const CompletionRequest r = completion(R"({
    "model": "gpt-x", "prompt": "x", "max_tokens": 7, "n": 3, "best_of": 3, "echo": true,
    "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5, "top_p": 0.25,
    "top_k": 4, "min_p": 0.125, "repeat_penalty": 1.5, "seed": -1, "stop": ["a", "", "bc"],
    "presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"7": -100, "3": 1.5},
    "ignore_eos": true, "grammar": "root ::= \"a\"", "priority": -5, "timeout_s": 2.5, "cache": false
  })");
  const GenerationOptions& o = r.options;
  EXPECT_EQ(o.max_tokens, 7);
  EXPECT_EQ(o.n, 3);
  EXPECT_TRUE(r.echo && o.stream && o.include_usage && o.ignore_eos);
  EXPECT_EQ(o.sampling.temperature, 0.5f);
  EXPECT_EQ(o.sampling.top_p, 0.25f);
  EXPECT_EQ(o.sampling.top_k, 4);
  EXPECT_EQ(o.sampling.min_p, 0.125f);
  EXPECT_EQ(o.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(o.seed, ~uint64_t{0});
  EXPECT_EQ(o.stop, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(o.penalties.presence, -2.0f);
  EXPECT_EQ(o.penalties.frequency, 2.0f);
  ASSERT_EQ(o.penalties.bias.size(), 2u);
  EXPECT_EQ(o.penalties.bias[0], (std::pair<int32_t, float>(3, 1.5f)));
  EXPECT_EQ(o.penalties.bias[1].first, 7);
  EXPECT_TRUE(std::isinf(o.penalties.bias[1].second) && o.penalties.bias[1].second < 0);
  EXPECT_EQ(o.form, AnswerForm::kGrammar);
  EXPECT_EQ(o.form_text, "root ::= \"a\"");
  EXPECT_EQ(o.priority, -5);
  EXPECT_FLOAT_EQ(static_cast<float>(o.timeout_s), 2.5f);
  EXPECT_FALSE(o.cache);
  EXPECT_EQ(completion_with(R"("session": "s1")").options.session, "s1");
}

TEST(CompletionRequest, TakesPromptsInFourShapes) {
  EXPECT_EQ(completion(R"({"prompt": ""})").prompts.size(), 1u);
  EXPECT_EQ(completion(R"({"prompt": [1, 299]})").prompts[0].ids, (std::vector<int32_t>{1, 299}));
  const auto texts = completion(R"({"prompt": ["a", "b"]})").prompts;
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].text, "b");
  const auto lists = completion(R"({"prompt": [[1], [2, 3]]})").prompts;
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[1].ids, (std::vector<int32_t>{2, 3}));
}

TEST(CompletionRequest, NullMeansNotSet) {
  const CompletionRequest r = completion(R"({
    "prompt": "x", "model": null, "max_tokens": null, "temperature": null, "stop": null, "n": null,
    "logprobs": null, "suffix": null, "logit_bias": null, "stream_options": null, "session": null})");
  EXPECT_EQ(r.options.max_tokens, 16);
  EXPECT_FALSE(r.options.want_logprobs);
}

TEST(CompletionRequest, IgnoresWhatChangesNothing) {
  EXPECT_NO_THROW(completion(R"({
    "prompt": "x", "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto",
    "suffix": "", "tools": [], "of_a_client": [{}, 1], "parallel_tool_calls": false})"));
}

struct BadBody {
  const char* body;
  const char* param;
};

// Parses each body; the errors must be 400s that name the field, in OpenAI's shape.
template <typename Parse>
void expect_refused(std::span<const BadBody> bodies, const Parse& parse) {
  for (const BadBody& bad : bodies) {
    SCOPED_TRACE(bad.body);
    const ApiError error = api_error_of([&] { parse(bad.body); });
    EXPECT_EQ(error.status(), 400) << error.what();
    EXPECT_EQ(error.param(), bad.param) << error.what();
    // JSON whatever the request was.
    const auto body = nlohmann::json::parse(error_body(error));
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    EXPECT_EQ(body["error"].size(), 4u);
  }
}

TEST(CompletionRequest, RefusesWrongBodiesWithTheirField) {
  const BadBody bodies[] = {
      {"", "prompt"},
      {"{", ""},
      {"[]", ""},
      {"null", ""},
      {"\"prompt\"", ""},
      {R"({"prompt": "x"} {})", ""},
      {"{\"prompt\": \"\xff\"}", ""},
      {R"({"prompt": "\ud800"})", ""},
      {R"({"prompt": NaN})", ""},
      {R"({"prompt": "x", "temperature": 1e999})", ""},
      {R"({})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[]]})", "prompt[0]"},
      {R"({"prompt": [1, "a"]})", "prompt[1]"},
      {R"({"prompt": ["a", 1]})", "prompt[1]"},
      {R"({"prompt": [300]})", "prompt[0]"},
      {R"({"prompt": [-1]})", "prompt[0]"},
      {R"({"prompt": [1.5]})", "prompt[0]"},
      {R"({"prompt": [18446744073709551615]})", "prompt[0]"},
      {R"({"prompt": "x", "model": 3})", "model"},
      {R"({"prompt": "x", "max_tokens": -1})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 1001})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 18446744073709551615})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": 1e3})", "max_tokens"},
      {R"({"prompt": "x", "max_tokens": "5"})", "max_tokens"},
      {R"({"prompt": "x", "n": 0})", "n"},
      {R"({"prompt": "x", "n": 9})", "n"},
      {R"({"prompt": "x", "n": true})", "n"},
      {R"({"prompt": "x", "best_of": 2})", "best_of"},
      {R"({"prompt": "x", "echo": 1})", "echo"},
      {R"({"prompt": "x", "echo": true, "logprobs": 1})", "logprobs"},
      {R"({"prompt": "x", "logprobs": 6})", "logprobs"},
      {R"({"prompt": "x", "logprobs": true})", "logprobs"},
      {R"({"prompt": "x", "stream": "yes"})", "stream"},
      {R"({"prompt": "x", "stream_options": {}})", "stream_options"},
      {R"({"prompt": "x", "stream": true, "stream_options": 1})", "stream_options"},
      {R"({"prompt": "x", "stream": true, "stream_options": {"include_usage": 1}})",
       "stream_options.include_usage"}};
  expect_refused(bodies, completion);
}

TEST(CompletionRequest, RefusesWrongOptionsWithTheirField) {
  const BadBody bodies[] = {
      {R"({"prompt": "x", "temperature": 2.01})", "temperature"},
      {R"({"prompt": "x", "temperature": -0.01})", "temperature"},
      {R"({"prompt": "x", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "x", "temperature": true})", "temperature"},
      {R"({"prompt": "x", "temperature": 1e300})", "temperature"},
      {R"({"prompt": "x", "top_p": 1.1})", "top_p"},
      {R"({"prompt": "x", "top_k": -1})", "top_k"},
      {R"({"prompt": "x", "top_k": 4294967297})", "top_k"},
      {R"({"prompt": "x", "min_p": 2})", "min_p"},
      {R"({"prompt": "x", "repeat_penalty": 0})", "repeat_penalty"},
      {R"({"prompt": "x", "presence_penalty": 2.5})", "presence_penalty"},
      {R"({"prompt": "x", "frequency_penalty": -3})", "frequency_penalty"},
      {R"({"prompt": "x", "seed": 1.5})", "seed"},
      {R"({"prompt": "x", "seed": 9223372036854775808})", "seed"},
      {R"({"prompt": "x", "stop": 5})", "stop"},
      {R"({"prompt": "x", "stop": ["a", 5]})", "stop[1]"},
      {R"({"prompt": "x", "stop": ["a", "b", "c", "d", "e"]})", "stop"},
      {R"({"prompt": "x", "logit_bias": []})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"256": 1}})", "logit_bias"},
      {R"({"prompt": "x", "logit_bias": {"1": 101}})", "logit_bias['1']"},
      {R"({"prompt": "x", "logit_bias": {"1": "a"}})", "logit_bias['1']"},
      {R"({"prompt": "x", "ignore_eos": 0})", "ignore_eos"},
      {R"({"prompt": "x", "session": ""})", "session"},
      {R"({"prompt": "x", "session": 1})", "session"},
      {R"({"prompt": "x", "session": "a", "n": 2})", "n"},
      {R"({"prompt": ["x", "y"], "session": "a"})", "session"},
      {R"({"prompt": "x", "priority": 1e9})", "priority"},
      {R"({"prompt": "x", "timeout_s": 0})", "timeout_s"},
      {R"({"prompt": "x", "timeout_s": 61})", "timeout_s"},
      {R"({"prompt": "x", "cache": "no"})", "cache"},
      {R"({"prompt": "x", "grammar": 1})", "grammar"},
      {R"({"prompt": "x", "response_format": "json"})", "response_format"},
      {R"({"prompt": "x", "response_format": {}})", "response_format.type"},
      {R"({"prompt": "x", "response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"prompt": "x", "response_format": {"type": "json_schema"}})",
       "response_format.json_schema"},
      {R"({"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {}}})",
       "response_format.json_schema.schema"},
      {R"({"prompt": "x", "grammar": "g", "response_format": {"type": "json_object"}})",
       "response_format"},
      {R"({"prompt": "x", "suffix": "end"})", "suffix"},
      {R"({"prompt": "x", "tools": [{"type": "function"}]})", "tools"},
      {R"({"prompt": "x", "prediction": {"type": "content"}})", "prediction"}};
  expect_refused(bodies, completion);
}

TEST(CompletionRequest, RefusesNestingAndManyPrompts) {
  const std::string deep =
      R"({"prompt": )" + std::string(10'000, '[') + "1" + std::string(10'000, ']') + "}";
  EXPECT_EQ(api_error_of([&] { completion(deep); }).status(), 400);
  nlohmann::json many = {{"prompt", std::vector<std::string>(129, "x")}};
  EXPECT_EQ(api_error_of([&] { completion(many.dump()); }).param(), "prompt");
  ApiLimits small = limits();
  small.max_prompts = 4;  // more could never wait here together, so trying again is in vain
  many["prompt"] = std::vector<std::string>(5, "x");
  EXPECT_EQ(api_error_of([&] { parse_completion_request(many.dump(), small); }).param(), "prompt");
}

TEST(CompletionRequest, RefusesTreesThatWouldTakeTheMemory) {
  std::string values = R"({"prompt": "a, [ {", "x": [1)";
  for (int i = 0; i < 1'000'000; ++i) values += ",1";
  EXPECT_EQ(api_error_of([&] { completion(values + "]}"); }).status(), 400);
  // What stands in a string is no value.
  EXPECT_EQ(completion(R"({"prompt": ")" + std::string(2'000'000, ',') + "\"}").prompts.size(), 1U);
}

TEST(CompletionRequest, TakesBothNamesOfTheLength) {
  EXPECT_EQ(completion_with(R"("max_completion_tokens": 3)").options.max_tokens, 3);
  EXPECT_EQ(completion_with(R"("repeat_penalty": 0.01)").options.sampling.repeat_penalty, 0.01f);
}

TEST(CompletionRequest, NamesAnUnknownModel) {
  const ApiError error = api_error_of([] { completion_with(R"("model": "gpt-4")"); });
  EXPECT_EQ(error.status(), 404);
  EXPECT_EQ(error.param(), "model");
  EXPECT_EQ(error.code(), "model_not_found");
  EXPECT_NE(std::string(error.what()).find("'demo'"), std::string::npos);
}

TEST(ChatRequest, ReadsMessagesOfAllRolesAndTextParts) {
  const ChatRequest r = chat(R"({"messages": [
    {"role": "system", "content": "s"}, {"role": "developer", "content": "d"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": "c", "tool_calls": [], "refusal": null, "name": "n"}]})");
  ASSERT_EQ(r.messages.size(), 4u);
  EXPECT_EQ(r.messages[1].role, "system");
  EXPECT_EQ(r.messages[2].content, "ab");
  EXPECT_EQ(r.messages[3].role, "assistant");
  EXPECT_EQ(r.options.max_tokens, 1000);  // as far as the server goes
}

TEST(ChatRequest, PrefersTheNewNameOfMaxTokens) {
  EXPECT_EQ(chat_with(R"("max_tokens": 5)").options.max_tokens, 5);
  EXPECT_EQ(chat_with(R"("max_tokens": 5, "max_completion_tokens": 6)").options.max_tokens, 6);
}

TEST(ChatRequest, ReadsLogprobs) {
  EXPECT_FALSE(chat_with(R"("logprobs": false)").options.want_logprobs);
  const ChatRequest r = chat_with(R"("logprobs": true, "top_logprobs": 20)");
  EXPECT_TRUE(r.options.want_logprobs);
  EXPECT_EQ(r.options.top_logprobs, 20);
}

TEST(ChatRequest, KeepsTheOrderOfASchema) {
  const ChatRequest r = chat_with(
      R"("metadata": {"response_format": 1}, "response_format": {"type": "json_schema", "json_schema":
      {"name": "n", "strict": true, "schema": {"type": "object", "properties": {"z": {"enum": [1]},
      "a": {"type": "string"}}}}})");
  EXPECT_EQ(r.options.form, AnswerForm::kJsonSchema);
  EXPECT_EQ(r.options.form_text,
            R"({"type":"object","properties":{"z":{"enum":[1]},"a":{"type":"string"}}})");
  EXPECT_EQ(chat_with(R"("response_format": {"type": "json_object"})").options.form,
            AnswerForm::kJsonObject);
  EXPECT_EQ(chat_with(R"("response_format": {"type": "text"})").options.form, AnswerForm::kText);
}

// Fields of this name elsewhere, in strings and in front of the one that counts are not it.
TEST(ChatRequest, FindsTheSchemaInAnyText) {
  const auto schema_of = [](const std::string& fields) {
    return chat_with(fields).options.form_text;
  };
  const std::string format =
      R"({"type": "json_schema", "json_schema": {"schema": {"x": "]}\\\""}}})";
  const std::string want = R"({"x":"]}\\\""})";
  EXPECT_EQ(schema_of(R"("response_format" : )" + format), want);
  EXPECT_EQ(schema_of(R"("a": "\",\"response_format\": 5", "response_format":)" + format), want);
  EXPECT_EQ(schema_of(R"("a": [{"response_format": 5}, ":"], "response_format":)" + format), want);
  EXPECT_EQ(schema_of(R"("response_format": {"type": "text"}, "response_format":)" + format), want);
  EXPECT_EQ(schema_of(R"("response\u005fformat":)" + format + R"(, "b": {"c": [":", 1]})"), want);
}

TEST(ChatRequest, ReadsLargeBodiesInLinearTime) {
  const std::string many = [] {
    std::string list = R"({"x": [{})";
    for (int i = 0; i < 400'000; ++i) list += ",{}";
    return list + "]}";
  }();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(api_error_of([&] { chat(many); }).param(), "messages");
  // A second or less; quadratic time would be an hour.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(ChatRequest, BoundsOnlyTheSchema) {
  nlohmann::json body = {{"messages", nlohmann::json::array()}};
  for (int i = 0; i < 4000; ++i) {
    body["messages"].push_back({{"role", "user"}, {"content", "x"}});
  }
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", true}}}};
  EXPECT_EQ(chat(body.dump()).options.form_text, "true");
  nlohmann::json& schema = body["response_format"]["json_schema"]["schema"];
  schema = nlohmann::json::object();
  for (int i = 0; i < 9000; ++i) schema[std::to_string(i)] = 1;
  EXPECT_EQ(api_error_of([&] { chat(body.dump()); }).param(), "response_format");
}

#define ONE_MESSAGE R"("messages": [{"role": "user", "content": "x"}])"
TEST(ChatRequest, RefusesWithTheField) {
  const BadBody bodies[] = {
      {"{}", "messages"},
      {R"({"messages": "x"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [5]})", "messages[0]"},
      {R"({"messages": [{}]})", "messages[0].role"},
      {R"({"messages": [{"role": 1}]})", "messages[0].role"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 7}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [1]}]})", "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages": [{"role": "assistant", "content": "x", "tool_calls": [1]}]})",
       "messages[0].tool_calls"},
      {"{" ONE_MESSAGE R"(, "tools": [{}]})", "tools"},
      {"{" ONE_MESSAGE R"(, "functions": [{}]})", "functions"},
      {"{" ONE_MESSAGE R"(, "tool_choice": "required"})", "tool_choice"},
      {"{" ONE_MESSAGE R"(, "audio": {"voice": "x"}})", "audio"},
      {"{" ONE_MESSAGE R"(, "modalities": ["text", "audio"]})", "modalities"},
      {"{" ONE_MESSAGE R"(, "max_tokens": 0})", "max_tokens"},
      {"{" ONE_MESSAGE R"(, "max_completion_tokens": 1001})", "max_completion_tokens"},
      {"{" ONE_MESSAGE R"(, "logprobs": 5})", "logprobs"},
      {"{" ONE_MESSAGE R"(, "top_logprobs": 5})", "top_logprobs"},
      {"{" ONE_MESSAGE R"(, "logprobs": true, "top_logprobs": 21})", "top_logprobs"}};
  expect_refused(bodies, chat);
}
#undef ONE_MESSAGE

TEST(EmbeddingRequest, ReadsInputsAndOptions) {
  const EmbeddingRequest r = parse_embedding_request(
      R"({"input": ["a", "b"], "pooling": "last", "encoding_format": "base64"})", limits());
  EXPECT_EQ(r.inputs.size(), 2u);
  EXPECT_TRUE(r.last && r.base64);
  const EmbeddingRequest plain = parse_embedding_request(R"({"input": [1, 2]})", limits());
  EXPECT_EQ(plain.inputs[0].ids.size(), 2u);
  EXPECT_FALSE(plain.last || plain.base64);
}

TEST(EmbeddingRequest, RefusesWithTheField) {
  const BadBody bodies[] = {{"{}", "input"},
                            {R"({"input": ""})", "input"},
                            {R"({"input": ["a", ""]})", "input"},
                            {R"({"input": "a", "pooling": "max"})", "pooling"},
                            {R"({"input": "a", "encoding_format": "hex"})", "encoding_format"},
                            {R"({"input": "a", "dimensions": 8})", "dimensions"}};
  for (const BadBody& bad : bodies) {
    const ApiError error = api_error_of([&] { parse_embedding_request(bad.body, limits()); });
    EXPECT_EQ(error.param(), bad.param) << bad.body;
  }
}

TEST(SmallRequests, AreReadAndRefused) {
  EXPECT_EQ(parse_tokenize_request(R"({"content": "x"})").content, "x");
  EXPECT_FALSE(parse_tokenize_request(R"({"content": "x"})").add_special);
  EXPECT_TRUE(
      parse_tokenize_request(R"({"messages": [{"role": "user", "content": "x"}]})").is_chat);
  EXPECT_EQ(api_error_of([] { parse_tokenize_request("{}"); }).param(), "content");
  EXPECT_EQ(api_error_of([] { parse_tokenize_request(R"({"content": 1})"); }).param(), "content");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens": [1, 2]})", 256), (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(parse_detokenize_request(R"({"tokens": []})", 256).empty());
  EXPECT_EQ(api_error_of([] { parse_detokenize_request(R"({"tokens": [256]})", 256); }).param(),
            "tokens[0]");
  EXPECT_EQ(parse_session_id(""), "");
  EXPECT_EQ(parse_session_id(R"({"id": "a"})"), "a");
  EXPECT_EQ(api_error_of([] { parse_session_id(R"({"id": 1})"); }).param(), "id");
  EXPECT_EQ(parse_rollback(R"({"tokens": 3})"), 3);
  EXPECT_EQ(api_error_of([] { parse_rollback(R"({"tokens": 0})"); }).param(), "tokens");
}

}  // namespace
}  // namespace adder
