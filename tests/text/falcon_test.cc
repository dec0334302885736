// Falcon's tokenizer against published ids. Its vocabulary is at hand as GGUF metadata only, of
// which the test makes the equivalent tokenizer.json.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text_testing.h"

namespace adder {
namespace {

using testing::fixture;

// Reads the metadata of a GGUF file; only the arrays of strings are kept.
class GgufStrings {
 public:
  explicit GgufStrings(std::string bytes) : bytes_(std::move(bytes)) {
    if (take(4) != "GGUF" || number<uint32_t>() != 3) throw std::runtime_error("not GGUF 3");
    (void)number<uint64_t>();  // tensors
    const auto pairs = number<uint64_t>();
    for (uint64_t i = 0; i < pairs; ++i) {
      const std::string key = string();
      value(number<uint32_t>(), key);
    }
  }
  const std::vector<std::string>& operator[](const std::string& key) const {
    return arrays_.at(key);
  }

 private:
  static constexpr uint32_t kString = 8, kArray = 9;

  std::string take(uint64_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("GGUF cut short");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string string() { return take(number<uint64_t>()); }
  void value(uint32_t type, const std::string& key) {
    static constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) {
      (void)string();
    } else if (type == kArray) {
      const auto element = number<uint32_t>();
      const auto count = number<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        if (element == kString) {
          arrays_[key].push_back(string());
        } else {
          value(element, key);
        }
      }
    } else {
      take(kSizes[type]);
    }
  }

  std::string bytes_;
  size_t at_ = 0;
  std::map<std::string, std::vector<std::string>> arrays_;
};

nlohmann::json falcon_json(const GgufStrings& gguf) {
  using Json = nlohmann::json;
  Json json;
  const auto& tokens = gguf["tokenizer.ggml.tokens"];
  for (size_t id = 0; id < tokens.size(); ++id) json["model"]["vocab"][tokens[id]] = id;
  json["model"]["merges"] = gguf["tokenizer.ggml.merges"];
  json["model"]["type"] = "BPE";
  for (size_t id = 0; id < 12; ++id) {
    json["added_tokens"].push_back(
        {{"id", id}, {"content", tokens[id]}, {"special", true}, {"normalized", false}});
  }
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}},
                             {{"type", "Digits"}, {"individual_digits", false}},
                             {{"type", "Split"},
                              {"pattern", {{"Regex", "[0-9][0-9][0-9]"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}}}}};
  json["decoder"] = {{"type", "ByteLevel"}};
  return json;
}

TEST(Falcon, MatchesAllVectorsAndDecodesThem) {
  ADDER_NEED_FIXTURE("tokenizers/ggml-vocab-falcon.gguf");
  const GgufStrings gguf(testing::read_bytes(fixture("tokenizers/ggml-vocab-falcon.gguf")));
  const std::string folder = fmt::format("{}adder_falcon_{}", ::testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.json") << falcon_json(gguf);
  const auto tokenizer = load_tokenizer(folder);
  std::filesystem::remove_all(folder);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 65024);
  EXPECT_EQ(tokenizer->eos_id(), 11);  // <|endoftext|>
  const auto vectors = testing::read_vectors(fixture("tokenizers/falcon_vectors.inp"),
                                             fixture("tokenizers/falcon_vectors.out"));
  ASSERT_EQ(vectors.size(), 46u);
  for (const auto& [text, ids] : vectors) {
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  std::mt19937 rng(7);
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::random_utf8(rng, rng() % 50);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

}  // namespace
}  // namespace adder
