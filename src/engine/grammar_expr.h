// Grammars as trees of rules, before they are compiled: what the readers of GBNF and of JSON
// schemas build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adder {

// 0 to 15, or -1.
constexpr int hex_digit(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  const char32_t lower = c < 0x80 ? c | 0x20 : 0;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a') + 10 : -1;
}

struct CodePointRange {
  char32_t first, last;  // both belong to it
};

// Ascending and apart, without surrogates and what lies above U+10FFFF.
std::vector<CodePointRange> normalize_ranges(const std::vector<CodePointRange>& ranges);
// All other code points; `ranges` is normalized, and so is the result.
std::vector<CodePointRange> complement_ranges(const std::vector<CodePointRange>& ranges);
// What is in both; both are normalized, and so is the result.
std::vector<CodePointRange> common_ranges(const std::vector<CodePointRange>& a,
                                          const std::vector<CodePointRange>& b);

struct GrammarExpr {
  enum class Kind : uint8_t { kLiteral, kClass, kSequence, kChoice, kRepeat, kRule };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kSequence;
  std::string text;                    // kLiteral: UTF-8
  std::vector<CodePointRange> ranges;  // kClass: normalized
  std::vector<GrammarExpr> parts;      // kSequence (none: the empty text), kChoice, kRepeat (one)
  uint32_t min = 0, max = 0;           // kRepeat
  uint32_t rule = 0;                   // kRule: its place in GrammarSource::rules

  static GrammarExpr literal(std::string_view text);
  static GrammarExpr char_class(const std::vector<CodePointRange>& ranges);  // in any order
  static GrammarExpr sequence(std::vector<GrammarExpr> parts);
  static GrammarExpr choice(std::vector<GrammarExpr> parts);
  // The same of parts one by one, which are moved and not copied.
  template <typename... Parts>
  static GrammarExpr sequence(GrammarExpr first, Parts... more) {
    return sequence(list(std::move(first), std::move(more)...));
  }
  template <typename... Parts>
  static GrammarExpr choice(GrammarExpr first, Parts... more) {
    return choice(list(std::move(first), std::move(more)...));
  }
  static GrammarExpr repeat(GrammarExpr part, uint32_t min, uint32_t max = kUnbounded);
  static GrammarExpr optional(GrammarExpr part) { return repeat(std::move(part), 0, 1); }
  static GrammarExpr call(uint32_t rule);

 private:
  template <typename... Parts>
  static std::vector<GrammarExpr> list(Parts... parts) {
    std::vector<GrammarExpr> all;
    all.reserve(sizeof...(parts));
    (all.push_back(std::move(parts)), ...);
    return all;
  }
};

struct GrammarSource {
  struct Rule {
    std::string name;  // for messages
    GrammarExpr body;
  };

  std::string what = "grammar";  // begins every message
  std::vector<Rule> rules;
  uint32_t root = 0;

  uint32_t add(std::string name, GrammarExpr body = {});
};

}  // namespace adder
