// Text: stop strings, end of text, whole characters, as they come out of a stream of tokens.
#include <gtest/gtest.h>

#include "engine/engine_testing.h"
#include "engine/generator.h"
#include "text/unicode.h"

namespace adder {
namespace {

using namespace adder::testing;

// The greedy ids of this model after its golden prompt are known and the first nine are distinct,
// so a tokenizer that spells them at will makes the engine say anything.
constexpr char kModel[] = "mamba1_hf";

struct Said {
  GenerationResult result;
  std::vector<std::string> streamed;
};

Said say(const std::vector<std::string>& pieces, const std::vector<std::string>& stop,
         int64_t max_tokens = -1, bool strips = false, int special_piece = -1) {
  const auto expected = golden_json(kModel);
  const auto greedy_ids = ids_of(expected["greedy"]);
  std::vector<std::pair<int32_t, std::string>> spelling;
  for (size_t i = 0; i < pieces.size(); ++i) spelling.emplace_back(greedy_ids[i], pieces[i]);
  auto tokenizer = std::make_unique<PieceTokenizer>(101, spelling);
  tokenizer->strips = strips;
  if (special_piece >= 0) tokenizer->special = greedy_ids[static_cast<size_t>(special_piece)];
  Engine engine(std::make_shared<Checkpoint>(Checkpoint::open(golden_path(kModel))),
                std::move(tokenizer), {.threads = 1});
  GenerationRequest request =
      greedy(ids_of(expected["prompt"]),
             max_tokens < 0 ? static_cast<int64_t>(pieces.size()) : max_tokens);
  request.stop = stop;
  Said said;
  request.on_text = [&](std::string_view text) { said.streamed.emplace_back(text); };
  said.result = generate(engine, request);
  EXPECT_EQ(engine.states().free_slots(), 1);
  std::string all;
  for (const std::string& part : said.streamed) {
    EXPECT_FALSE(part.empty());
    EXPECT_EQ(valid_utf8_prefix(part), part.size()) << "a character was split";
    all += part;
  }
  EXPECT_EQ(all, said.result.text);
  return said;
}

TEST(GenerationText, StopStringOverTokenBoundaries) {
  const Said said = say({"one ", "tw", "o th", "ree", " four"}, {"two three"});
  EXPECT_EQ(said.result.text, "one ");
  EXPECT_EQ(said.result.finish, FinishReason::kStop);
  EXPECT_EQ(said.result.tokens.size(), 4u);
}

TEST(GenerationText, TextBehindTheStopStringInTheSameTokenIsDropped) {
  EXPECT_EQ(say({"a", "b;c;d", "e"}, {";"}).result.text, "ab");
  EXPECT_EQ(say({"###"}, {"#"}).result.text, "");
}

TEST(GenerationText, HeldBackTailComesOutWhenItWasNoStopString) {
  const Said said = say({"ab", "ab", "ac", "x"}, {"ababab", "acy"});
  EXPECT_EQ(said.result.text, "ababacx");
  EXPECT_EQ(said.result.finish, FinishReason::kLength);
  EXPECT_EQ(said.streamed.size(), 2u);  // "ab" when "ac" came, the rest when "x" did
  EXPECT_EQ(say({"x", "<", "/"}, {"</s>"}).result.text, "x</");  // at the end of the stream
}

// "aab" begins inside the tail that is held back for it: "aa" + "ab".
TEST(GenerationText, StopStringThatBeginsInsideAHeldBackTail) {
  EXPECT_EQ(say({"a", "a", "a", "b", "c"}, {"aab"}).result.text, "a");
  EXPECT_EQ(say({"<<", "<", "/s", ">"}, {"</s>"}).result.text, "<<");
}

TEST(GenerationText, OverlappingStopStringsEndAtTheOneThatIsCompleteFirst) {
  EXPECT_EQ(say({"xa", "bc", "d"}, {"abcd", "bc"}).result.text, "xa");
  EXPECT_EQ(say({"xabcd"}, {"abcd", "bc"}).result.text, "xa");  // the same in one piece
  EXPECT_EQ(say({"xa", "bc"}, {"bc", "abc"}).result.text, "x");
  EXPECT_EQ(say({"xy"}, {"", "y"}).result.text, "x");  // an empty one never matches
}

TEST(GenerationText, CharactersAreNeverSplit) {
  const Said said = say({"\xc3", "\xa9\xe2", "\x82", "\xac", "\xf0\x9f", "\x90\x8d", "\xe2"}, {});
  EXPECT_EQ(said.result.text, "\u00e9\u20ac\U0001f40d\ufffd");
  EXPECT_EQ(said.streamed, (std::vector<std::string>{"\u00e9", "\u20ac", "\U0001f40d", "\ufffd"}));
}

TEST(GenerationText, BytesThatAreNoCharacterBecomeOneReplacementEach) {
  EXPECT_EQ(say({"a\xff", "\xc3", "b"}, {}).result.text, "a\ufffd\ufffdb");
}

TEST(GenerationText, StopStringOfSplitCharacters) {
  EXPECT_EQ(say({"a\xe2", "\x82", "\xac!"}, {"\u20ac"}).result.text, "a");
  EXPECT_EQ(say({"a\xe2\x82", "\xad!"}, {"\u20ac"}).result.text, "a\u20ad!");
}

TEST(GenerationText, SpecialTokensAreCountedButNotSpelled) {
  const Said said = say({"a", "<tool>", "b"}, {"<tool>"}, -1, false, 1);
  EXPECT_EQ(said.result.text, "ab");
  EXPECT_EQ(said.result.tokens.size(), 3u);
}

// SentencePiece marks word starts with a blank; only the first word of a text loses it.
TEST(GenerationText, AnswerAfterAPromptKeepsItsBlank) {
  EXPECT_EQ(say({" Sure", ","}, {}, -1, true).result.text, " Sure,");
}

TEST(GenerationText, AnswerAfterControlTokensAloneIsTheStartOfAText) {
  const auto checkpoint = std::make_shared<Checkpoint>(Checkpoint::open(golden_path(kModel)));
  Engine silent(checkpoint, nullptr, {.threads = 1});
  const GenerationRequest request = greedy({7}, 1);
  const int32_t first = generate(silent, request).tokens[0];
  ASSERT_NE(first, 7);
  auto tokenizer = std::make_unique<PieceTokenizer>(
      101, std::vector<std::pair<int32_t, std::string>>{{first, " Sure"}});
  tokenizer->strips = true;
  tokenizer->special = 7;
  Engine engine(checkpoint, std::move(tokenizer), {.threads = 1});
  EXPECT_EQ(generate(engine, request).text, "Sure");
}

TEST(GenerationText, EndOfTextStopsUnlessIgnored) {
  // The token that ends the text is made the one this model says fifth.
  const auto expected = golden_json(kModel);
  const auto ids = ids_of(expected["greedy"]);
  TempDir dir;
  auto config = nlohmann::json::parse(std::ifstream(golden_path(kModel) + "/config.json"));
  config["eos_token_id"] = {1, ids[4]};
  dir.write("config.json", config.dump());
  dir.write("model.safetensors", read_file(golden_path(kModel) + "/model.safetensors"));
  const auto engine = Engine::load(dir.path(), {.threads = 1, .slots = 2});
  GenerationRequest request = greedy(ids_of(expected["prompt"]), 10);
  request.ignore_eos = false;
  Conversation c;
  request.conversation = &c;
  const GenerationResult stopped = generate(*engine, request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(ids.begin(), ids.begin() + 4));
  EXPECT_EQ(c.length, 29 + 4);  // the end-of-text token is no part of the conversation
  GenerationRequest more = greedy({}, 3);
  more.conversation = &c;
  EXPECT_EQ(generate(*engine, more).tokens, std::vector<int32_t>(ids.begin() + 4, ids.begin() + 7));
  request.conversation = nullptr;
  request.ignore_eos = true;
  EXPECT_EQ(generate(*engine, request).tokens.size(), 10u);
}

TEST(GenerationText, StopStringsOfTheDemoModel) {
  const auto engine = demo_engine();
  GenerationRequest request = greedy(engine->tokenizer().encode("It was a fine morning, and "), 60);
  const std::string text = generate(*engine, request).text;
  ASSERT_GT(text.size(), 30u);
  ASSERT_EQ(valid_utf8_prefix(text), text.size());
  for (const size_t at : {0u, 7u, 20u}) {
    const std::string stop = text.substr(at, 6);  // six tokens long
    request.stop = {"never said", stop};
    const GenerationResult stopped = generate(*engine, request);
    EXPECT_EQ(stopped.text, text.substr(0, text.find(stop)));
    EXPECT_EQ(stopped.finish, FinishReason::kStop);
    EXPECT_EQ(stopped.tokens.size(), text.find(stop) + 6);
  }
}

}  // namespace
}  // namespace adder
