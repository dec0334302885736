// SentencePiece models against ids made by the library itself (tools/make_sentencepiece_golden.py).
#include "text/sentencepiece.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/normalizer.h"
#include "text/sentencepiece_merges.h"
#include "text/sentencepiece_model.h"
#include "text/unicode.h"
#include "text_testing.h"

namespace adder {
namespace {

using testing::fixture;
using Ids = std::vector<int32_t>;

std::string golden(const std::string& name) {
  return fmt::format("{}/tests/golden/tokenizers/{}", ADDER_SOURCE_DIR, name);
}

void expect_vectors(const Tokenizer& tokenizer, const std::string& file) {
  const auto vectors = nlohmann::json::parse(testing::read_bytes(golden(file)))["vectors"];
  ASSERT_GE(vectors.size(), 60u);
  for (const auto& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), vector["ids"].get<Ids>()) << vector["text"];
  }
}

// U+2581 in a text cannot be told from a blank.
std::string with_blanks(std::string_view text) {
  return replace_all(text, "\u2581", " ");
}

void expect_streaming(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string_view piece = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  text += decoder.finish();
  EXPECT_EQ(text, replace_invalid_utf8(tokenizer.decode(ids, true)));
}

TEST(SentencePiece, SmallBpeModel) {
  const auto tokenizer = load_tokenizer(golden("sp_bpe"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->kind(), "SentencePiece BPE");
  expect_vectors(*tokenizer, "sp_bpe/vectors.json");
  // Bytes that are not UTF-8 go through the byte pieces; no blank comes up behind them.
  std::mt19937 rng(4);
  for (int i = 0; i < 500; ++i) {
    const std::string text =
        i % 2 == 0 ? testing::random_bytes(rng, rng() % 60) : testing::random_utf8(rng, rng() % 40);
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), with_blanks(text));
    for (const int32_t id : ids) EXPECT_FALSE(tokenizer->is_special(id));
    expect_streaming(*tokenizer, ids);
  }
}

TEST(SentencePiece, SmallUnigramModelWithNormaliserRules) {
  const auto tokenizer = load_tokenizer(golden("sp_unigram"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->kind(), "SentencePiece unigram");
  expect_vectors(*tokenizer, "sp_unigram/vectors.json");
}

TEST(SentencePiece, ControlPiecesOnlyWhereAsked) {
  const auto tokenizer = load_tokenizer(golden("sp_bpe"));
  const int32_t open = tokenizer->token_to_id("[INST]").value();
  const int32_t close = tokenizer->token_to_id("[/INST]").value();
  EXPECT_TRUE(tokenizer->is_special(open));
  EXPECT_TRUE(tokenizer->wants_bos());
  const std::string text = "[INST]the snake[/INST]";
  const Ids ids = tokenizer->encode(text, {.parse_special = true, .add_bos = true});
  Ids want = {tokenizer->bos_id().value(), open};
  const Ids inner = tokenizer->encode("the snake");
  want.insert(want.end(), inner.begin(), inner.end());
  want.push_back(close);
  EXPECT_EQ(ids, want);
  EXPECT_EQ(tokenizer->decode(ids, true), "the snake");
  for (const int32_t id : tokenizer->encode(text)) EXPECT_FALSE(tokenizer->is_special(id));
  const std::vector<TextPart> parts = {{"[INST]", true}, {"x[/INST]", false}, {"[/INST]", true}};
  const Ids joined = tokenizer->encode_parts(parts, false);
  EXPECT_EQ(std::count(joined.begin(), joined.end(), close), 1);
  EXPECT_EQ(joined.back(), close);
}

TEST(SentencePiece, ContinuedStreamsKeepTheirFirstBlank) {
  const auto tokenizer = load_tokenizer(golden("sp_bpe"));
  const Ids ids = tokenizer->encode("the");
  StreamDecoder from_start(*tokenizer), after_prompt(*tokenizer, false);
  std::string start, after;
  for (const int32_t id : ids) start += from_start.push(id);
  for (const int32_t id : ids) after += after_prompt.push(id);
  EXPECT_EQ(start, "the");
  EXPECT_EQ(after, " the");
}

TEST(Mistral, MatchesTheLibraryAndRoundTrips) {
  ADDER_NEED_FIXTURE("tokenizers/mistral_instruct_tokenizer_240323.model.v3");
  const auto tokenizer =
      load_tokenizer_file(fixture("tokenizers/mistral_instruct_tokenizer_240323.model.v3"));
  EXPECT_EQ(tokenizer->size(), 32768);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->token_to_id("[INST]"), 3);
  EXPECT_EQ(tokenizer->token_to_id("[/INST]"), 4);
  expect_vectors(*tokenizer, "mistral_v3.json");
  EXPECT_EQ(tokenizer->encode("[INST]Hello[/INST]", {.parse_special = true, .add_bos = true}),
            (Ids{1, 3, 23325, 4}));
  std::mt19937 rng(5);
  for (int i = 0; i < 200; ++i) {
    const std::string text = testing::random_utf8(rng, rng() % 40);
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids), with_blanks(text));
    expect_streaming(*tokenizer, ids);
  }
  const std::string prose = testing::read_bytes(fixture("text/austen_persuasion.txt"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(prose)), prose);
}

// Our merge loop against the library: any text, any model that the loop takes.
TEST(SentencePiece, BothEnginesGiveTheSameIds) {
  std::vector<std::string> models = {golden("sp_bpe/tokenizer.model")};
  const std::string mistral = fixture("tokenizers/mistral_instruct_tokenizer_240323.model.v3");
  if (std::filesystem::exists(mistral)) models.push_back(mistral);
  for (const std::string& model : models) {
    const std::string bytes = testing::read_bytes(model);
    ASSERT_TRUE(SentencePieceMerges::can_run(read_sentencepiece_model(bytes, model)));
    const auto fast = parse_sentencepiece(bytes, model);
    const auto library = parse_sentencepiece(bytes, model, SentencePieceEngine::kLibrary);
    std::mt19937 rng(8);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = i % 3 == 0   ? testing::random_bytes(rng, rng() % 80)
                               : i % 3 == 1 ? testing::random_utf8(rng, rng() % 80)
                                            : testing::random_letters(rng, rng() % 300);
      ASSERT_EQ(fast->encode(text), library->encode(text)) << text;
    }
    for (const char* name : {"text/austen_persuasion.txt", "text/wikitext2.valid.tokens"}) {
      if (!std::filesystem::exists(fixture(name))) continue;
      const std::string text = testing::read_bytes(fixture(name)).substr(0, 200'000);
      EXPECT_EQ(fast->encode(text), library->encode(text)) << name;
    }
  }
}

// What the library would read beyond its arrays for must be refused before it is asked.
TEST(SentencePiece, RefusesHostileModels) {
  const std::string good = testing::read_bytes(golden("sp_unigram/tokenizer.model"));
  for (size_t size = 0; size < good.size(); size += 37) {
    try {
      const auto tokenizer = parse_sentencepiece(std::string_view(good).substr(0, size), "cut");
      (void)tokenizer->encode("the snake sheds");
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("cut")) << error.what();
    }
  }
  std::mt19937 rng(6);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 8; ++k) bad[rng() % bad.size()] = static_cast<char>(rng());
    try {
      const auto tokenizer = parse_sentencepiece(bad, "bad");
      const Ids ids = tokenizer->encode(testing::random_utf8(rng, 40));
      for (const int32_t id : ids) (void)tokenizer->token_bytes(id);
    } catch (const std::runtime_error&) {
    }
  }
  SentencePieceModel nested;
  const std::string long_text(80, 'a');
  nested.pieces.push_back({"<unk>", 0, PieceType::kUnknown});
  for (size_t i = 1; i <= 70; ++i) {
    nested.pieces.push_back({std::string_view(long_text).substr(0, i), 0, PieceType::kUserDefined});
  }
  EXPECT_THROW((void)parse_sentencepiece(write_sentencepiece_model(nested, true), "nested"),
               std::runtime_error);
  nested.pieces.resize(60);
  EXPECT_NO_THROW((void)parse_sentencepiece(write_sentencepiece_model(nested, true), "nested"));
  nested.pieces.push_back({"a", 0, PieceType::kNormal});
  EXPECT_THROW((void)parse_sentencepiece(write_sentencepiece_model(nested, true), "twice"),
               std::runtime_error);
}

}  // namespace
}  // namespace adder
