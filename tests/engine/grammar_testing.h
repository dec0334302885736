// Helpers of the tests of grammars: vocabularies, byte by byte matching, random walks, and a second
// matcher that keeps every stack by itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/grammar.h"
#include "engine/token_mask.h"
#include "engine/token_vocabulary.h"
#include "testing/inputs.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace adder::testing {

using GrammarPtr = std::shared_ptr<const Grammar>;
using VocabularyPtr = std::shared_ptr<const TokenVocabulary>;

// 256 ids, of which 0 is the end of text.
inline VocabularyPtr byte_vocabulary() {
  static const VocabularyPtr vocabulary =
      std::make_shared<const TokenVocabulary>(*make_byte_tokenizer());
  return vocabulary;
}

// Byte-level BPE with tokens that cross every border of JSON and of UTF-8. The last id is the end
// of text, the one before it has the bytes of a token from the list once more.
inline std::unique_ptr<Tokenizer> make_json_tokenizer() {
  const auto spelled = [](std::string_view bytes) {
    std::string out;
    for (const char c : bytes) append_utf8(out, byte_to_character(static_cast<uint8_t>(c)));
    return out;
  };
  nlohmann::json json = {{"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}}},
                         {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token :
       {"{\"",      "\":",       "\": ",     "\", ",     "\",\"",        "\"}",      "\"]",
        "}}",       "]]",        "},",       "], ",      "[\"",          "[[",       "[{",
        "{}",       "[]",        "true",     "false",    "null",         "tr",       "ue",
        "nu",       "ll",        "ab",       "abc",      "the",          " the",     "name",
        "\"name\"", "\"name\":", "age",      "id",       "12",           "123",      "0.",
        ".5",       "-1",        "e+",       "1e",       "\\\"",         "\\u",      "\\n",
        "\\ud8",    "00",        "\xc3\xa9", "\xe4\xb8", "\xe4\xb8\xad", "\xf0\x9f", "\x9f\x98\x80",
        "\xa9\"",   ", ",        ": ",       "  ",       "\"a\"",        "\"b\"",    "{\"a\"",
        "2024",     "-0",        "2-",       "T1",       "Z\"",          "+0"}) {
    tokens.emplace_back(token);
  }
  nlohmann::json& vocabulary = json["model"]["vocab"];
  for (size_t id = 0; id < tokens.size(); ++id) vocabulary[spelled(tokens[id])] = id;
  const auto next = static_cast<int>(vocabulary.size());
  json["added_tokens"] = {{{"id", next}, {"content", "abc"}, {"special", false}},
                          {{"id", next + 1}, {"content", "<end>"}, {"special", true}}};
  auto tokenizer = parse_tokenizer_json(json.dump(), "test");
  tokenizer->set_eos(next + 1);
  return tokenizer;
}

inline VocabularyPtr json_vocabulary() {
  static const VocabularyPtr vocabulary =
      std::make_shared<const TokenVocabulary>(*make_json_tokenizer());
  return vocabulary;
}

// GPT-NeoX's 50,277 tokens; null when the file is not there.
inline VocabularyPtr neox_vocabulary() {
  static const VocabularyPtr vocabulary = []() -> VocabularyPtr {
    const std::string file = ADDER_FIXTURES_DIR "/tokenizers/20B_tokenizer.json";
    if (!std::filesystem::exists(file)) return nullptr;
    return std::make_shared<const TokenVocabulary>(*load_tokenizer_file(file));
  }();
  return vocabulary;
}

// Which ids may come next, by way of mask().
inline std::vector<bool> allowed_ids(const GrammarMatcher& matcher, size_t rows,
                                     std::span<const int32_t> end_ids = {}) {
  std::vector<float> logits(rows, 1.0f);
  const bool any = matcher.mask(logits, end_ids);
  std::vector<bool> allowed(rows);
  for (size_t id = 0; id < rows; ++id) allowed[id] = logits[id] == 1.0f;
  const auto count = std::count(allowed.begin(), allowed.end(), true);
  EXPECT_EQ(static_cast<size_t>(count) +
                static_cast<size_t>(std::count(logits.begin(), logits.end(),
                                               -std::numeric_limits<float>::infinity())),
            rows);
  EXPECT_EQ(any, count > 0);
  return allowed;
}

inline bool can_accept(GrammarMatcher matcher, int32_t token) {
  try {
    matcher.accept(token);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Byte by byte; false as soon as one cannot come. Byte 0 is no token of this vocabulary.
inline bool accept_bytes(GrammarMatcher& matcher, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0 || !can_accept(matcher, byte)) return false;
    matcher.accept(byte);
  }
  return true;
}

inline bool matches(const GrammarPtr& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar, byte_vocabulary());
  return accept_bytes(matcher, text) && matcher.can_end();
}

// The texts of a finite grammar, found by following every byte that is allowed.
inline std::set<std::string> all_texts(const GrammarPtr& grammar, size_t most = 10'000) {
  std::set<std::string> texts;
  std::vector<std::pair<std::string, GrammarMatcher>> open;
  open.emplace_back("", GrammarMatcher(grammar, byte_vocabulary()));
  while (!open.empty() && texts.size() < most) {
    const auto [text, matcher] = open.back();
    open.pop_back();
    if (matcher.can_end()) texts.insert(text);
    const auto allowed = allowed_ids(matcher, 256);
    for (int byte = 1; byte < 256; ++byte) {
      if (!allowed[static_cast<size_t>(byte)]) continue;
      GrammarMatcher next = matcher;
      next.accept(byte);
      open.emplace_back(text + static_cast<char>(byte), std::move(next));
    }
  }
  EXPECT_LT(texts.size(), most);
  return texts;
}

// A text of the grammar: random tokens at first, then those that tend to end JSON.
inline std::string random_text(GrammarMatcher matcher, const VocabularyPtr& vocabulary, Rng& rng,
                               int random_tokens) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    if (matcher.must_end()) return text;
    if (matcher.can_end() && (i >= random_tokens || rng.below(8) == 0)) return text;
    const auto allowed = allowed_ids(matcher, static_cast<size_t>(vocabulary->size()));
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      if (allowed[static_cast<size_t>(id)]) ids.push_back(id);
    }
    if (ids.empty()) break;
    int32_t chosen = ids[static_cast<size_t>(rng.below(static_cast<int64_t>(ids.size())))];
    const auto is_allowed = [&](std::string_view bytes) {
      const auto found = std::find_if(ids.begin(), ids.end(),
                                      [&](int32_t id) { return vocabulary->bytes(id) == bytes; });
      if (found == ids.end()) return false;
      chosen = *found;
      return true;
    };
    // Also ends strings now and then, which random tokens would not; at last whatever may lead out.
    if (i >= random_tokens && !is_allowed("\"")) {
      static const std::vector<std::string> kWaysOut = {"}", "]", "n", "u", "l", "0",
                                                        "1", "@", "x", "y", ".", "\x80"};
      for (size_t tries = 0, k = rng.bits() % 12; tries < 12; ++tries, k = (k + 1) % 12) {
        if (is_allowed(kWaysOut[k])) break;
      }
    } else if (i < random_tokens && rng.below(6) == 0) {
      is_allowed("\"");
    }
    matcher.accept(chosen);
    text += vocabulary->bytes(chosen);
  }
  ADD_FAILURE() << "no end in sight: " << text.substr(0, 500);
  return text;
}

// Keeps every stack by itself, and rules that end at once are followed like all others.
class StackMatcher {
 public:
  explicit StackMatcher(GrammarPtr grammar) : grammar_(std::move(grammar)) {
    close({{grammar_->start(grammar_->root())}});
  }

  bool step(uint8_t byte) {
    std::set<Stack> next;
    for (const Stack& stack : stacks_) {
      if (stack.empty()) continue;
      for (const Grammar::ByteEdge& edge : grammar_->byte_edges(stack.back())) {
        if (edge.low > byte || byte > edge.high) continue;
        Stack moved = stack;
        moved.back() = edge.target;
        next.insert(std::move(moved));
      }
    }
    close(std::move(next));
    return !stacks_.empty();
  }
  bool can_take(std::string_view bytes) const {
    StackMatcher copy = *this;
    return std::all_of(bytes.begin(), bytes.end(),
                       [&](char c) { return copy.step(static_cast<uint8_t>(c)); });
  }
  bool can_end() const { return stacks_.count({}) > 0; }

 private:
  using Stack = std::vector<uint32_t>;

  void close(std::set<Stack> todo) {
    stacks_.clear();
    while (!todo.empty()) {
      const Stack stack = *todo.begin();
      todo.erase(todo.begin());
      if (!stacks_.insert(stack).second || stack.empty()) continue;
      const auto add = [&](Stack changed) {
        if (stacks_.count(changed) == 0) todo.insert(std::move(changed));
      };
      const uint32_t top = stack.back();
      Stack below(stack.begin(), stack.end() - 1);
      if (grammar_->accepts(top)) add(below);
      for (const uint32_t target : grammar_->jumps(top)) {
        Stack moved = below;
        moved.push_back(target);
        add(std::move(moved));
      }
      for (const Grammar::Call& call : grammar_->calls(top)) {
        Stack called = below;
        called.push_back(call.target);
        called.push_back(grammar_->start(call.rule));
        add(std::move(called));
      }
    }
  }

  GrammarPtr grammar_;
  std::set<Stack> stacks_;
};

inline void expect_refused(const std::string& part, const auto& call) {
  try {
    call();
    ADD_FAILURE() << "accepted, expected an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace adder::testing
