// What tokenizer.json may say wrongly, and what the folder around it adds.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text_testing.h"

namespace adder {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

// a, b and ab, of characters.
Json small() {
  return {{"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

void expect_refused(const Json& json, ErrorCode code, std::string_view part) {
  try {
    (void)parse_tokenizer_json(json.dump(), "t.json");
    ADD_FAILURE() << "accepted: " << json.dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("t.json: ")) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(TokenizerJson, NamesWhatIsWrong) {
  const auto bad = [](const Json& patch, std::string_view part) {
    Json json = small();
    json.merge_patch(patch);
    expect_refused(json, ErrorCode::kBadInput, part);
  };
  bad({{"model", {{"vocab", nullptr}, {"merges", nullptr}}}},
      "model.vocab: expected tokens, got none");
  bad({{"model", {{"vocab", {{"c", 0}}}}}}, "the token or its id 0 occurs twice");
  bad({{"model", {{"vocab", {{"c", -1}}}}}}, "expected an id in [0, 4194304), got -1");
  bad({{"model", {{"vocab", {{"c", 5'000'000}}}}}}, "got 5000000");
  bad({{"model", {{"vocab", {{"c", "x"}}}}}}, "model.vocab['c']: expected a whole number");
  bad({{"model", {{"merges", {"a b", "b a"}}}}}, "model.merges[1]: 'ba' is not in model.vocab");
  bad({{"model", {{"merges", {"ab"}}}}}, "model.merges[0]: expected two tokens");
  bad({{"model", {{"merges", {{"a", "b", "c"}}}}}}, "model.merges[0]: more than 2 strings");
  bad({{"model", {{"merges", {7}}}}}, "model.merges[0]: expected a string or a pair");
  bad({{"model", {{"unk_token", "?"}}}}, "model.unk_token: '?' is not in model.vocab");
  bad({{"added_tokens", {{{"id", 9}}}}}, "added_tokens[0].content: expected a string, got nothing");
  bad({{"added_tokens", {{{"id", "9"}, {"content", "x"}}}}}, "added_tokens[0].id");
  bad({{"pre_tokenizer",
        {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}}},
      "pre_tokenizer.pattern");
  bad({{"pre_tokenizer", 5}}, "pre_tokenizer: expected an object");
  bad({{"post_processor",
        {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}}}},
      "token '<s>' is not in the vocabulary");
}

TEST(TokenizerJson, SaysWhatItDoesNotSupport) {
  const auto unsupported = [](const Json& patch, std::string_view part) {
    Json json = small();
    json.merge_patch(patch);
    expect_refused(json, ErrorCode::kUnsupported, part);
  };
  unsupported({{"model", {{"type", "WordPiece"}}}}, "model.type: expected BPE");
  unsupported({{"model",
                {{"type", "Unigram"},
                 {"vocab", Json::array({Json::array({"a", -0.5})})},
                 {"merges", nullptr}}}},
              "got 'Unigram'");
  unsupported({{"model", {{"dropout", 0.1}}}}, "model.dropout");
  unsupported({{"model", {{"end_of_word_suffix", "</w>"}}}}, "model.end_of_word_suffix");
  unsupported({{"normalizer", {{"type", "BertNormalizer"}}}}, "got 'BertNormalizer'");
  unsupported({{"pre_tokenizer", {{"type", "BertPreTokenizer"}}}}, "got 'BertPreTokenizer'");
  unsupported({{"decoder", {{"type", "CTC"}}}}, "got 'CTC'");
  unsupported({{"decoder", {{"type", "ByteLevel"}}}}, "decoder.type");
}

TEST(TokenizerJson, SurvivesTruncationAndDamage) {
  const std::string good = testing::read_bytes(
      fmt::format("{}/tests/golden/tokenizers/llama3/tokenizer.json", ADDER_SOURCE_DIR));
  for (size_t size = 0; size + 2 < good.size(); size += 61) {
    EXPECT_THROW((void)parse_tokenizer_json(std::string_view(good).substr(0, size), "t"), Error);
  }
  std::mt19937 rng(10);
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 4; ++k) bad[rng() % bad.size()] = static_cast<char>(rng() % 128);
    try {
      const auto tokenizer = parse_tokenizer_json(bad, "t");
      (void)tokenizer->decode(tokenizer->encode(testing::random_utf8(rng, 30)));
    } catch (const Error&) {
    }
  }
  EXPECT_THROW((void)parse_tokenizer_json(std::string(100'000, '['), "t"), Error);
  std::string many = "{\"x\":[0";
  for (int i = 0; i < 1'000'001; ++i) many += ",0";
  EXPECT_THROW((void)parse_tokenizer_json(many + "]}", "t"), Error);
}

TEST(TokenizerJson, ReadsMergesThatComeFirst) {
  const auto tokenizer =
      parse_tokenizer_json(R"({"model":{"merges":[["a","b"]],"vocab":{"a":0,"b":1,"ab":2}}})", "t");
  EXPECT_EQ(tokenizer->encode("abba"), (Ids{2, 1, 0}));
  EXPECT_EQ(tokenizer->kind(), "BPE");
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = fmt::format("{}adder_tokenizer_{}", ::testing::TempDir(), getpid());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const char* name, const Json& json) const {
    std::ofstream(std::filesystem::path(path_) / name) << json;
  }
  std::string path_;
};

TEST_F(Folder, WithoutATokenizerGivesNull) {
  EXPECT_EQ(load_tokenizer(path_), nullptr);
}

TEST_F(Folder, TakesBosAndEosFromItsFiles) {
  Json json = small();
  json["added_tokens"] = {{{"id", 3}, {"content", "<s>"}, {"special", true}},
                          {{"id", 4}, {"content", "</s>"}, {"special", true}},
                          {{"id", 5}, {"content", "<end>"}, {"special", true}}};
  write("tokenizer.json", json);
  auto tokenizer = load_tokenizer(path_);
  EXPECT_EQ(tokenizer->eos_id(), 4);  // guessed
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->encode("ab", {.add_bos = true}), Ids{2});

  write("special_tokens_map.json", {{"bos_token", "<s>"}, {"eos_token", {{"content", "<end>"}}}});
  tokenizer = load_tokenizer(path_);
  EXPECT_EQ(tokenizer->bos_id(), 3);
  EXPECT_EQ(tokenizer->eos_id(), 5);
  EXPECT_FALSE(tokenizer->wants_bos());

  write("tokenizer_config.json", {{"eos_token", "</s>"}, {"add_bos_token", true}});
  tokenizer = load_tokenizer(path_);
  EXPECT_EQ(tokenizer->eos_id(), 4);
  EXPECT_EQ(tokenizer->encode("ab", {.add_bos = true}), (Ids{3, 2}));
  EXPECT_EQ(tokenizer->encode("ab"), Ids{2});

  write("tokenizer_config.json", {{"eos_token", 7}});
  EXPECT_THROW((void)load_tokenizer(path_), Error);
}

TEST_F(Folder, FailsOnAFileOfAnotherKind) {
  write("tokenizer.json", Json::array({1, 2}));
  EXPECT_THROW((void)load_tokenizer(path_), Error);
  std::ofstream(path_ + "/tokenizer.model") << "<!DOCTYPE html>";
  EXPECT_THROW((void)load_tokenizer_file(path_ + "/tokenizer.model"), Error);
  EXPECT_THROW((void)load_tokenizer_file(path_ + "/missing.json"), Error);
}

// What the vocabulary of Llama-3's kind says about itself.
TEST(TokenizerJson, TakesBosFromTheTemplate) {
  const auto tokenizer =
      load_tokenizer(fmt::format("{}/tests/golden/tokenizers/llama3", ADDER_SOURCE_DIR));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->encode("", {.add_bos = true}), Ids{1});
}

}  // namespace
}  // namespace adder
