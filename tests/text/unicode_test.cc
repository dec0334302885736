#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"
#include "text_testing.h"

namespace adder {
namespace {

// An independent decoder: tries every length and checks the value, not the bytes.
bool is_character(std::string_view bytes) {
  static constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t length = lead < 0x80       ? 1
                        : lead >> 5 == 6  ? 2
                        : lead >> 4 == 14 ? 3
                        : lead >> 3 == 30 ? 4
                                          : 0;
  if (length != bytes.size()) return false;
  char32_t value = length == 1 ? lead : lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<uint8_t>(bytes[i]) & 0xc0) != 0x80) return false;
    value = value << 6 | (static_cast<uint8_t>(bytes[i]) & 0x3f);
  }
  return value >= kSmallest[length] && value <= 0x10ffff && !(value >= 0xd800 && value <= 0xdfff);
}

TEST(Utf8, AgreesWithASlowDecoderOnRandomBytes) {
  std::mt19937 rng(9);
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes = testing::random_bytes(rng, 1 + rng() % 5);
    for (char& c : bytes) {  // mostly leads and continuations
      if (rng() % 4 != 0) c = static_cast<char>(0x80 | rng() % 0x80);
    }
    const Utf8Part part = next_utf8(bytes, 0);
    ASSERT_LE(part.length, bytes.size());
    bool whole = false;
    for (size_t n = 1; n <= bytes.size(); ++n) whole = whole || is_character(bytes.substr(0, n));
    ASSERT_EQ(part.kind == Utf8Kind::kValid, whole);
    if (whole) {
      ASSERT_TRUE(is_character(bytes.substr(0, part.length)));
      std::string again;
      append_utf8(again, part.code_point);
      ASSERT_EQ(again, bytes.substr(0, part.length));
    }
  }
}

// The examples of Unicode 14, table 3-8 and its neighbours: one U+FFFD per maximal part.
TEST(Utf8, ReplacesMaximalInvalidParts) {
  EXPECT_EQ(replace_invalid_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\x41");
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"),
            "\ufffd\ufffd\ufffd\ufffd\x41");
  EXPECT_EQ(replace_invalid_utf8("a\xf4\x90\x80\x80"), "a\ufffd\ufffd\ufffd\ufffd");
}

TEST(Normalize, ComposesAndDecomposes) {
  EXPECT_EQ(normalize_utf8("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(normalize_utf8("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize_utf8("\u1e9b\u0323", NormalForm::kNfc), "\u1e9b\u0323");
  EXPECT_EQ(normalize_utf8("\u1e9b\u0323", NormalForm::kNfkc), "\u1e69");
  EXPECT_EQ(normalize_utf8("\u1112\u1161\u11ab", NormalForm::kNfc), "\ud55c");
  EXPECT_EQ(normalize_utf8("\ufb01\u2460", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(normalize_utf8("\u212b", NormalForm::kNfc), "\u00c5");
  EXPECT_EQ(normalize_utf8("q\u0307\u0323", NormalForm::kNfc), "q\u0323\u0307");
  EXPECT_EQ(normalize_utf8(std::string("a\0b", 3), NormalForm::kNfkc), std::string("a\0b", 3));
}

// A run of marks in the worst order: by insertion this is 10^10 steps.
TEST(Normalize, IsNotQuadraticInMarks) {
  std::string marks = "e";
  for (int i = 0; i < 150'000; ++i) marks += "\u0301\u0323";
  const std::string normal = normalize_utf8(marks, NormalForm::kNfc);
  EXPECT_TRUE(normal.starts_with("\u1eb9\u0323\u0323"));  // e with the dot below comes first
  EXPECT_TRUE(normal.ends_with("\u0301\u0301"));
  EXPECT_EQ(normalize_utf8(normal, NormalForm::kNfc), normal);
}

TEST(Classes, AreThoseOfTheRules) {
  for (const char32_t c : {U'0', U'9', U'\u0664', U'\u00bd', U'\u2167', U'\u00b2'}) {
    EXPECT_TRUE(is_numeric(c));
  }
  for (const char32_t c : {U'a', U' ', U'\u4e2d', U'.'}) EXPECT_FALSE(is_numeric(c));
  for (const char32_t c : U"$+<=>^`|~!-_\u2014\u00ab\u3002") {
    if (c != 0) {
      EXPECT_TRUE(is_punctuation(c)) << static_cast<uint32_t>(c);
    }
  }
  for (const char32_t c : {U'\u20ac', U'\u00b0', U'a', U'\u00d7'}) EXPECT_FALSE(is_punctuation(c));
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00a0', U'\u3000', U'\u2028'}) {
    EXPECT_TRUE(is_white_space(c));
  }
  for (const char32_t c : {U'\u180e', U'\u200b', U'\ufeff'}) EXPECT_FALSE(is_white_space(c));
  for (const char32_t c : {U'_', U'a', U'\u0301', U'\u24b6', U'\u200d', U'7'}) {
    EXPECT_TRUE(is_word_character(c));
  }
  for (const char32_t c : {U'-', U' ', U'\u00b2', U'\u20ac'}) EXPECT_FALSE(is_word_character(c));
}

TEST(ByteLevel, SpellsEveryByteAndReadsItBack) {
  std::string all, spelled;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
    append_utf8(spelled, byte_to_character(static_cast<uint8_t>(byte)));
  }
  EXPECT_EQ(characters_to_bytes(spelled), all);
  EXPECT_EQ(byte_to_character(' '), 0x120u);
  EXPECT_EQ(byte_to_character('\n'), 0x10au);
  EXPECT_EQ(byte_to_character('!'), U'!');
  EXPECT_EQ(byte_to_character(0xad), 0x143u);
  EXPECT_EQ(characters_to_bytes("a b"), std::nullopt);
  EXPECT_EQ(characters_to_bytes("\u4e2d"), std::nullopt);
}

}  // namespace
}  // namespace adder
