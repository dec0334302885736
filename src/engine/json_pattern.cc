#include "engine/json_pattern.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/grammar.h"
#include "engine/json_rules.h"
#include "io/printable.h"
#include "text/unicode.h"

namespace adder {
namespace {

using Expr = GrammarExpr;
using Ranges = std::vector<CodePointRange>;

constexpr char32_t kPatternEnd = 0xffffffff;  // what peek() gives after the last character
constexpr uint32_t kMaxGroups = 32;           // inside each other

class PatternParser {
 public:
  PatternParser(std::string_view pattern, const Expr& character, const std::string& where)
      : pattern_(pattern), character_(character), where_(where) {}

  Expr parse();

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    bad_input("{}: pattern {}: {} at byte {} is not supported", where_, printable(pattern_), what,
              position_);
  }
  [[noreturn]] void fail_expected(std::string_view expected) const {
    const std::string got =
        position_ == pattern_.size() ? "the end" : printable(pattern_.substr(position_, 1));
    bad_input("{}: pattern {}: expected {} at byte {}, got {}", where_, printable(pattern_),
              expected, position_, got);
  }

  char32_t peek() const {
    return position_ == pattern_.size() ? kPatternEnd : next_utf8(pattern_, position_).code_point;
  }
  char32_t take() {
    const Utf8Part part = next_utf8(pattern_, position_);
    position_ += part.length;
    return part.code_point;
  }
  bool skip(std::string_view token) {
    if (!pattern_.substr(position_).starts_with(token)) return false;
    position_ += token.size();
    return true;
  }

  Expr parse_choice(uint32_t groups);
  Expr parse_sequence(uint32_t groups);
  Expr parse_item(uint32_t groups);
  Expr parse_repeat(Expr item);
  uint32_t take_count();
  Ranges take_class();
  Ranges take_escape(bool in_class);
  char32_t take_hex(int digits);
  Expr any_text() const { return Expr::repeat(character_, 0); }

  std::string_view pattern_;
  const Expr& character_;
  const std::string& where_;
  size_t position_ = 0;
};

Ranges all_but(const Ranges& ranges) {
  return complement_ranges(normalize_ranges(ranges));
}

Expr PatternParser::parse() {
  ADDER_CHECK(pattern_.size() <= kMaxPattern, "{}: expected a pattern of at most {} bytes, got {}",
              where_, kMaxPattern, pattern_.size());
  Expr expr = parse_choice(0);
  if (peek() != kPatternEnd) fail_expected("the end");
  return expr;
}

Expr PatternParser::parse_choice(uint32_t groups) {
  if (groups > kMaxGroups) refuse(fmt::format("more than {} groups inside each other", kMaxGroups));
  std::vector<Expr> parts;
  do {
    if (groups > 0) {
      parts.push_back(parse_sequence(groups));
      continue;
    }
    std::vector<Expr> whole;
    if (!skip("^")) whole.push_back(any_text());
    whole.push_back(parse_sequence(groups));
    if (!skip("$")) whole.push_back(any_text());
    if (peek() != kPatternEnd && peek() != '|') fail_expected("'|' or the end");
    parts.push_back(Expr::sequence(std::move(whole)));
  } while (skip("|"));
  return Expr::choice(std::move(parts));
}

Expr PatternParser::parse_sequence(uint32_t groups) {
  std::vector<Expr> parts;
  while (peek() != kPatternEnd && peek() != '|' && peek() != ')') {
    if (peek() == '$' && groups == 0) break;
    parts.push_back(parse_repeat(parse_item(groups)));
  }
  return Expr::sequence(std::move(parts));
}

Expr PatternParser::parse_item(uint32_t groups) {
  switch (peek()) {
    case '^':
    case '$':
      refuse("an anchor inside the pattern");
    case '*':
    case '+':
    case '?':
    case '{':
    case '}':
    case ']':
      fail_expected("a character, class or group");
    case '(': {
      ++position_;
      if (peek() == '?' && !skip("?:")) refuse("a group that begins with '(?'");
      Expr group = parse_choice(groups + 1);
      if (!skip(")")) fail_expected("')'");
      return group;
    }
    case '[':
      return json_characters(take_class());
    case '.':
      ++position_;
      return json_characters(all_but({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    case '\\':
      return json_characters(take_escape(false));
    default: {
      const char32_t c = take();
      return json_characters({{c, c}});
    }
  }
}

Expr PatternParser::parse_repeat(Expr item) {
  uint32_t min = 0, max = Expr::kUnbounded;
  if (skip("+")) {
    min = 1;
  } else if (skip("?")) {
    max = 1;
  } else if (skip("{")) {
    min = max = take_count();
    if (skip(",")) max = peek() == '}' ? Expr::kUnbounded : take_count();
    if (!skip("}")) fail_expected("'}'");
    if (max < min) fail_expected("counts in ascending order");
  } else if (!skip("*")) {
    return item;
  }
  skip("?");  // lazy: the same texts
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
    fail_expected("one operator on each item");
  }
  return Expr::repeat(std::move(item), min, max);
}

uint32_t PatternParser::take_count() {
  const size_t begin = position_;
  uint32_t count = 0;
  while (peek() >= '0' && peek() <= '9' && count <= Grammar::kMaxRepeat) {
    count = count * 10 + static_cast<uint32_t>(take() - '0');
  }
  if (begin == position_ || count > Grammar::kMaxRepeat) {
    fail_expected(fmt::format("a count of at most {}", Grammar::kMaxRepeat));
  }
  return count;
}

Ranges PatternParser::take_class() {
  ++position_;
  const bool negated = skip("^");
  Ranges ranges;
  while (peek() != ']') {
    if (peek() == kPatternEnd) fail_expected("']'");
    const auto take_part = [&]() -> Ranges {
      if (peek() == '\\') return take_escape(true);
      const char32_t c = take();
      return {{c, c}};
    };
    Ranges part = take_part();
    if (peek() == '-' && !pattern_.substr(position_).starts_with("-]")) {
      ++position_;
      if (peek() == kPatternEnd) fail_expected("']'");
      const Ranges last = take_part();
      const auto is_one = [](const Ranges& r) { return r.size() == 1 && r[0].first == r[0].last; };
      if (!is_one(part) || !is_one(last) || last[0].first < part[0].first) {
        fail_expected("a range of characters in ascending order before");
      }
      part[0].last = last[0].last;
    }
    ranges.insert(ranges.end(), part.begin(), part.end());
  }
  ++position_;
  ranges = normalize_ranges(ranges);
  if (negated) ranges = complement_ranges(ranges);
  if (ranges.empty()) refuse("a class without characters");
  return ranges;
}

char32_t PatternParser::take_hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = hex_digit(peek());
    if (digit < 0) fail_expected(fmt::format("{} hexadecimal digits", digits));
    value = value * 16 + static_cast<char32_t>(digit);
    ++position_;
  }
  if (value >= 0xd800 && value <= 0xdfff) refuse("half of a surrogate pair");
  return value;
}

Ranges PatternParser::take_escape(bool in_class) {
  ++position_;
  const char32_t c = peek();
  if (c == kPatternEnd) fail_expected("a character after '\\'");
  Ranges digit = {{'0', '9'}};
  Ranges word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  // White space and line ends of ECMAScript.
  Ranges space = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                  {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                  {0x3000, 0x3000}, {0xfeff, 0xfeff}};
  const auto one = [](char32_t character) { return Ranges{{character, character}}; };
  const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  if (c < 0x80 && (is_letter || (c >= '0' && c <= '9'))) {
    const size_t begin = position_;
    ++position_;
    switch (c) {
      case 'd':
        return digit;
      case 'D':
        return all_but(digit);
      case 'w':
        return word;
      case 'W':
        return all_but(word);
      case 's':
        return space;
      case 'S':
        return all_but(space);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case 'x':
        return one(take_hex(2));
      case 'u':
        return one(take_hex(4));
      case '0':
        if (!(peek() >= '0' && peek() <= '9')) return one(0);
        break;
      case 'b':
        if (in_class) return one('\b');
        break;
      default:
        break;
    }
    position_ = begin;
    refuse(fmt::format("'\\{}'", static_cast<char>(c)));
  }
  return one(take());
}

}  // namespace

GrammarExpr json_pattern(std::string_view pattern, const GrammarExpr& character,
                         const std::string& where) {
  return PatternParser(pattern, character, where).parse();
}

}  // namespace adder
