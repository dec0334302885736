// Streaming against decoding all at once.
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text_testing.h"

namespace adder {
namespace {

using Ids = std::vector<int32_t>;

std::string stream(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  std::string all;
  for (const int32_t id : ids) {
    const std::string_view piece = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    all += piece;
  }
  return all.append(decoder.finish());
}

TEST(ByteTokenizer, IsOneIdPerByte) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->size(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_EQ(tokenizer->encode("a\xff\n"), (Ids{97, 255, 10}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 255, 0, 10}), std::string("a\xff\0\n", 4));
  EXPECT_EQ(tokenizer->decode(Ids{97, 0, 10}, true), "a\n");
  EXPECT_EQ(tokenizer->token_to_id("\xff"), 255);
  EXPECT_EQ(tokenizer->token_to_id("ab"), std::nullopt);
  EXPECT_THROW((void)tokenizer->decode(Ids{256}), std::runtime_error);
  EXPECT_THROW((void)tokenizer->token_bytes(-1), std::runtime_error);
}

TEST(StreamDecoder, HoldsBackUntilACharacterIsWhole) {
  const auto tokenizer = make_byte_tokenizer();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xf0), "");
  EXPECT_EQ(decoder.push(0x9f), "");
  EXPECT_EQ(decoder.push(0x9a), "");
  EXPECT_EQ(decoder.push(0x80), "🚀");
  EXPECT_EQ(decoder.push(0xe4), "");
  EXPECT_EQ(decoder.push('x'), "\ufffdx");  // the byte can no longer become a character
  EXPECT_EQ(decoder.push(0xf0), "");
  EXPECT_EQ(decoder.push(0x9f), "");
  EXPECT_EQ(decoder.push(0), "");  // a control token gives nothing and breaks nothing
  EXPECT_EQ(decoder.finish(), "\ufffd");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, EqualsBatchDecodingForBytes) {
  const auto tokenizer = make_byte_tokenizer();
  std::mt19937 rng(2);
  for (int i = 0; i < 2000; ++i) {
    std::string text =
        i % 2 == 0 ? testing::random_bytes(rng, rng() % 40) : testing::random_utf8(rng, rng() % 20);
    if (i % 4 == 1 && !text.empty()) text.erase(rng() % text.size(), 1);
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(stream(*tokenizer, ids), replace_invalid_utf8(tokenizer->decode(ids, true)));
  }
}

TEST(StreamDecoder, EqualsBatchDecodingForNeoX) {
  ADDER_NEED_FIXTURE("tokenizers/20B_tokenizer.json");
  const auto tokenizer = load_tokenizer_file(testing::fixture("tokenizers/20B_tokenizer.json"));
  std::mt19937 rng(3);
  for (int i = 0; i < 500; ++i) {
    Ids ids = tokenizer->encode(testing::random_utf8(rng, rng() % 30), {.parse_special = true});
    EXPECT_EQ(stream(*tokenizer, ids), replace_invalid_utf8(tokenizer->decode(ids, true)));
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 50277);  // what a bad model says
    EXPECT_EQ(stream(*tokenizer, ids), replace_invalid_utf8(tokenizer->decode(ids, true)));
  }
}

}  // namespace
}  // namespace adder
