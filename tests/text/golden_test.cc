// Small tokenizers of every family against ids made by Hugging Face's tokenizers
// (tools/make_tokenizer_golden.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text_testing.h"

namespace adder {
namespace {

using Ids = std::vector<int32_t>;

std::string golden_folder(const std::string& family) {
  return fmt::format("{}/tests/golden/tokenizers/{}", ADDER_SOURCE_DIR, family);
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = load_tokenizer(golden_folder(GetParam()));
    ASSERT_NE(tokenizer_, nullptr);
    vectors_ =
        nlohmann::json::parse(testing::read_bytes(golden_folder(GetParam()) + "/vectors.json"));
    ASSERT_GE(vectors_.size(), 60u);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json vectors_;
};

TEST_P(Golden, EncodesWithControlTokens) {
  for (const auto& vector : vectors_) {
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, {.parse_special = true}), vector["ids"].get<Ids>())
        << vector["text"];
  }
}

TEST_P(Golden, EncodesControlTokensAsText) {
  for (const auto& vector : vectors_) {
    const auto text = vector["text"].get<std::string>();
    const Ids ids = tokenizer_->encode(text);
    EXPECT_EQ(ids, vector["plain"].get<Ids>()) << vector["text"];
  }
}

TEST_P(Golden, Decodes) {
  for (const auto& vector : vectors_) {
    const auto ids = vector["ids"].get<Ids>();
    EXPECT_EQ(replace_invalid_utf8(tokenizer_->decode(ids)), vector["decoded"].get<std::string>())
        << vector["text"];
  }
}

TEST_P(Golden, StreamsWhatItDecodes) {
  for (const auto& vector : vectors_) {
    const auto ids = vector["ids"].get<Ids>();
    StreamDecoder decoder(*tokenizer_);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    text += decoder.finish();
    EXPECT_EQ(text, replace_invalid_utf8(tokenizer_->decode(ids, true)));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         ::testing::Values("gpt2", "llama3", "cl100k", "falcon", "mixed", "llama2",
                                           "metaspace"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace adder
