// Regular expressions of JSON schemas ("pattern", and "format" by way of one) as grammars.
#pragma once

#include <string>
#include <string_view>

#include "engine/grammar_expr.h"

namespace adder {

inline constexpr size_t kMaxPattern = 4096;  // bytes

// What may stand between the quotes of a JSON string whose value the pattern matches somewhere:
// without ^ and $, `character` (one of any kind, JsonRules::character()) repeats before and behind.
//
// Read are: characters, `.`, \d \w \s \D \W \S, \t \n \v \f \r \0 \xHH \uHHHH, escaped punctuation,
// classes, groups ( ) and (?: ), alternatives, * + ? {m} {m,} {m,n} (also lazy), and ^ and $ at the
// ends of the pattern's alternatives. Throws Error(kBadInput) "WHERE: ..." for everything else:
// look-around, back references, \b, \p, anchors elsewhere.
GrammarExpr json_pattern(std::string_view pattern, const GrammarExpr& character,
                         const std::string& where);

}  // namespace adder
