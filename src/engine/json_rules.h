// Rules for the parts of strict JSON (RFC 8259) that a model may write.
//
// Blanks: at most one after each ',' and ':', none anywhere else, so that no budget is spent on
// them. Numbers are bounded in length so that every reader takes them: integers have at most 18
// digits, others 16 before and 16 after the point and 2 in the exponent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar_expr.h"

namespace adder {

// Adds rules to a grammar when they are first asked for.
class JsonRules {
 public:
  explicit JsonRules(GrammarSource& source) : source_(source) {}

  GrammarExpr value();
  GrammarExpr object();
  GrammarExpr array();
  GrammarExpr string();
  GrammarExpr character();  // one inside a string: itself or an escape, surrogates in pairs only
  GrammarExpr number();
  GrammarExpr integer();
  // What else may be a key: a string that is none of `names`. With names it has no escapes, as
  // these could spell a name in another way. Names have at most kMaxOtherKey characters.
  GrammarExpr other_key(const std::vector<std::string>& names);

 private:
  using Index = std::optional<uint32_t>;

  GrammarSource& source_;
  Index value_, object_, array_, string_, character_, number_, integer_, wide_, key_end_;
};

inline constexpr size_t kMaxOtherKey = 256;

inline GrammarExpr literal(std::string_view text) {
  return GrammarExpr::literal(text);
}
inline GrammarExpr json_digits(size_t min, size_t max) {
  return GrammarExpr::repeat(GrammarExpr::char_class({{'0', '9'}}), static_cast<uint32_t>(min),
                             static_cast<uint32_t>(max));
}
// "At most one blank", as it may follow ',' and ':'.
GrammarExpr json_blank();
// The text in quotes, escaped as far as it must be.
std::string json_quoted(std::string_view text);
// One character of a class inside a string, each in one spelling.
GrammarExpr json_characters(const std::vector<CodePointRange>& ranges);

inline constexpr int64_t kMaxJsonInteger = 999'999'999'999'999'999;

// Integers from low to high, -kMaxJsonInteger <= low <= high <= kMaxJsonInteger.
GrammarExpr json_integers(int64_t low, int64_t high);

struct JsonLimit {
  int64_t whole;
  bool excluded = false;
};
// Numbers without an exponent between limits; those that are not given are 15 digits away. Nothing
// if no number lies between them. Fractions are short enough that a reader of doubles does not
// round them up to an excluded limit.
std::optional<GrammarExpr> json_numbers(std::optional<JsonLimit> low,
                                        std::optional<JsonLimit> high);

}  // namespace adder
