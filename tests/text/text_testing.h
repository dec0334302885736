// Helpers of the text tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adder::testing {

inline std::string fixture(const std::string& name) {
  return fmt::format("{}/{}", ADDER_FIXTURES_DIR, name);
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

struct Vector {
  std::string text;
  std::vector<int32_t> ids;
};

// Files in the format of fixtures/tokenizers/README.md: 46 texts and their ids.
inline std::vector<Vector> read_vectors(const std::string& inputs, const std::string& outputs) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string all = read_bytes(inputs);
  std::istringstream lines(read_bytes(outputs));
  std::vector<Vector> vectors;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find(kSeparator, at);
    if (end == std::string::npos) break;
    Vector vector{.text = all.substr(at, end - at)};
    std::string line;
    std::getline(lines, line);
    std::istringstream numbers(line);
    for (int32_t id; numbers >> id;) vector.ids.push_back(id);
    vectors.push_back(std::move(vector));
    at = end + kSeparator.size();
  }
  return vectors;
}

// Text of whole characters: ASCII, marks, letters of several scripts, emoji, blanks of all kinds.
inline std::string random_utf8(std::mt19937& rng, size_t characters) {
  static const std::vector<std::string> kPool = {"a",
                                                 "b",
                                                 "the",
                                                 " ",
                                                 "  ",
                                                 "\n",
                                                 "\t",
                                                 "\r\n",
                                                 "1",
                                                 "23",
                                                 "'s",
                                                 "'LL",
                                                 ".",
                                                 "!?",
                                                 "é",
                                                 "e\u0301",
                                                 "\u00a0",
                                                 "\u3000",
                                                 "\u180e",
                                                 "中",
                                                 "文",
                                                 "ก",
                                                 "\u0301",
                                                 "🚀",
                                                 "👩\u200d💻",
                                                 "ß",
                                                 "İ",
                                                 "²",
                                                 "½",
                                                 "Ⅷ",
                                                 "<|endoftext|>",
                                                 "[INST]",
                                                 "<s>",
                                                 "▁",
                                                 "<0x0A>",
                                                 "\x01",
                                                 "\x7f",
                                                 "ſ",
                                                 "\u2028"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kPool[rng() % kPool.size()];
  return text;
}

// Few letters, so that merges of every length come up.
inline std::string random_letters(std::mt19937& rng, size_t count) {
  std::string letters(count, '\0');
  for (char& c : letters) c = "eeetaoinsh r"[rng() % 12];
  return letters;
}

inline std::string random_bytes(std::mt19937& rng, size_t count) {
  std::string bytes(count, '\0');
  for (char& c : bytes) c = static_cast<char>(rng());
  return bytes;
}

}  // namespace adder::testing

#define ADDER_NEED_FIXTURE(name)                                 \
  if (!std::filesystem::exists(::adder::testing::fixture(name))) \
  GTEST_SKIP() << "missing " << ::adder::testing::fixture(name)
