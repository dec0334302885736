// The GPT-NeoX tokenizer against published ids.
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text_testing.h"

namespace adder {
namespace {

using testing::fixture;

class NeoX : public ::testing::Test {
 protected:
  void SetUp() override {
    ADDER_NEED_FIXTURE("tokenizers/20B_tokenizer.json");
    tokenizer_ = load_tokenizer_file(fixture("tokenizers/20B_tokenizer.json"));
  }
  std::vector<int32_t> encode(std::string_view text) const { return tokenizer_->encode(text); }

  std::unique_ptr<Tokenizer> tokenizer_;
};

using Ids = std::vector<int32_t>;

TEST_F(NeoX, MatchesAllVectorsAndDecodesThem) {
  const auto vectors = testing::read_vectors(fixture("tokenizers/neox_vectors.inp"),
                                             fixture("tokenizers/neox_vectors.out"));
  ASSERT_EQ(vectors.size(), 46u);
  for (const auto& [text, ids] : vectors) {
    EXPECT_EQ(encode(text), ids) << text;
    EXPECT_EQ(tokenizer_->decode(ids), normalize_utf8(text, NormalForm::kNfc));
  }
}

TEST_F(NeoX, SpotChecks) {
  EXPECT_EQ(encode("Hey how are you doing?"), (Ids{8262, 849, 403, 368, 2509, 32}));
  EXPECT_EQ(encode("Hello my name is"), (Ids{12092, 619, 1416, 310}));
  EXPECT_EQ(encode("a  b"), (Ids{66, 50276, 67}));
  EXPECT_EQ(encode(std::string(25, ' ')), (Ids{50254, 209}));
  EXPECT_EQ(encode("e\u0301"), (Ids{860}));
  EXPECT_EQ(encode("\u00e9"), (Ids{860}));
  EXPECT_EQ(encode(""), Ids{});
}

TEST_F(NeoX, KnowsItsControlTokens) {
  EXPECT_EQ(tokenizer_->size(), 50277);
  EXPECT_EQ(tokenizer_->kind(), "byte-level BPE");
  EXPECT_EQ(tokenizer_->eos_id(), 0);
  EXPECT_FALSE(tokenizer_->wants_bos());
  EXPECT_TRUE(tokenizer_->is_special(0));
  EXPECT_TRUE(tokenizer_->is_special(1));
  EXPECT_FALSE(tokenizer_->is_special(50276));
  EXPECT_EQ(tokenizer_->token_to_id("<|padding|>"), 1);
  EXPECT_EQ(tokenizer_->token_to_id(" the"), 253);
  const std::string text = "one<|endoftext|>two";
  const Ids ids = tokenizer_->encode(text, {.parse_special = true});
  EXPECT_EQ(ids, (Ids{531, 0, 9389}));
  EXPECT_EQ(tokenizer_->decode(ids), text);
  EXPECT_EQ(tokenizer_->decode(ids, true), "onetwo");
  const Ids plain = encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(tokenizer_->decode(plain, true), text);
}

TEST_F(NeoX, PartsAreOneTextButControlTokensOnlyCountWhereAsked) {
  const std::vector<TextPart> parts = {
      {"<|endoftext|>Hey how", true}, {" are you<|endoftext|>", false}, {" doing?", true}};
  Ids want = {0, 8262, 849, 403, 368};
  const Ids inner = encode("<|endoftext|> doing?");
  EXPECT_EQ(tokenizer_->encode_parts(parts, false).size(), want.size() + inner.size());
  want.insert(want.end(), inner.begin(), inner.end());
  EXPECT_EQ(tokenizer_->encode_parts(parts, false), want);
  // A token may not be put together from a template and a user's text.
  const std::vector<TextPart> torn = {{"<|endof", true}, {"text|>", false}};
  EXPECT_EQ(tokenizer_->encode_parts(torn, false), encode("<|endoftext|>"));
  const std::vector<TextPart> whole = {{"<|endof", true}, {"text|>", true}};
  EXPECT_EQ(tokenizer_->encode_parts(whole, false), Ids{0});
}

TEST_F(NeoX, RoundTripsRandomTextAndKeepsStrayBytes) {
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::random_utf8(rng, 1 + rng() % 60);
    EXPECT_EQ(tokenizer_->decode(encode(text)), normalize_utf8(text, NormalForm::kNfc)) << text;
  }
  // 0x80 and 0xe4 have tokens; 0xff has none and becomes U+FFFD.
  EXPECT_EQ(tokenizer_->decode(encode("a\x80 b\xe4")), "a\x80 b\xe4");
  EXPECT_EQ(tokenizer_->decode(encode("a\xff z")), "a\xef\xbf\xbd z");
  for (int i = 0; i < 200; ++i) {
    const Ids ids = encode(testing::random_bytes(rng, rng() % 200));
    for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer_->size());
  }
}

TEST_F(NeoX, RefusesForeignIds) {
  EXPECT_THROW((void)tokenizer_->decode(Ids{50277}), std::runtime_error);
  EXPECT_THROW((void)tokenizer_->token_bytes(-1), std::runtime_error);
}

}  // namespace
}  // namespace adder
