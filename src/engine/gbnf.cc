// The reader of GBNF: Grammar::parse.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "engine/grammar.h"
#include "engine/grammar_expr.h"
#include "io/printable.h"
#include "text/unicode.h"

namespace adder {
namespace {

constexpr char32_t kEnd = 0xffffffff;  // what peek() gives after the last character

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  GrammarSource parse();

 private:
  struct RuleUse {
    uint32_t index;
    size_t first_seen;  // where in the text
    bool defined = false;
  };

  [[noreturn]] void fail_expected(std::string_view expected) const;
  size_t line_of(size_t position) const;

  bool at_end() const { return position_ == text_.size(); }
  char32_t peek() const;
  char32_t take();
  bool skip(std::string_view token);
  // Blanks and comments; line ends too where the grammar goes on behind them.
  void skip_space(bool over_lines);

  RuleUse& rule_named(std::string_view name);
  std::string_view take_name();
  void parse_rule();
  GrammarExpr parse_choice(uint32_t nesting);
  GrammarExpr parse_sequence(uint32_t nesting);
  std::optional<GrammarExpr> parse_item(uint32_t nesting);
  GrammarExpr parse_literal();
  GrammarExpr parse_class();
  GrammarExpr parse_repeats(GrammarExpr item, uint32_t nesting);
  uint32_t take_count();
  char32_t take_character();  // of a literal or class, escapes read

  std::string_view text_;
  size_t position_ = 0;
  GrammarSource source_;
  std::map<std::string, RuleUse, std::less<>> rules_;
};

bool is_name_character(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

size_t GbnfParser::line_of(size_t position) const {
  const auto end = text_.begin() + static_cast<std::ptrdiff_t>(position);
  return 1 + static_cast<size_t>(std::count(text_.begin(), end, '\n'));
}

void GbnfParser::fail_expected(std::string_view expected) const {
  std::string got = "the end";
  if (!at_end()) {
    const char c = text_[position_];
    got = c == '\n' || c == '\r'
              ? "the end of the line"
              : printable(text_.substr(position_, next_utf8(text_, position_).length));
  }
  bad_input("grammar: line {}: expected {}, got {}", line_of(position_), expected, got);
}

char32_t GbnfParser::peek() const {
  return at_end() ? kEnd : next_utf8(text_, position_).code_point;
}

char32_t GbnfParser::take() {
  const Utf8Part part = next_utf8(text_, position_);
  position_ += part.length;
  return part.code_point;
}

bool GbnfParser::skip(std::string_view token) {
  if (!text_.substr(position_).starts_with(token)) return false;
  position_ += token.size();
  return true;
}

void GbnfParser::skip_space(bool over_lines) {
  while (!at_end()) {
    const char c = text_[position_];
    if (c == '#') {
      while (!at_end() && text_[position_] != '\n' && text_[position_] != '\r') ++position_;
    } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
      ++position_;
    } else {
      break;
    }
  }
}

GrammarSource GbnfParser::parse() {
  ADDER_CHECK(text_.size() <= Grammar::kMaxSource, "grammar: expected at most {} bytes, got {}",
              Grammar::kMaxSource, text_.size());
  const size_t valid = valid_utf8_prefix(text_);
  ADDER_CHECK(valid == text_.size(), "grammar: line {}: expected UTF-8, got byte 0x{:02x}",
              line_of(valid), static_cast<uint8_t>(text_[valid]));
  for (skip_space(true); !at_end(); skip_space(true)) parse_rule();
  for (const auto& [name, use] : rules_) {
    ADDER_CHECK(use.defined, "grammar: line {}: expected a rule named {} somewhere, got none",
                line_of(use.first_seen), printable(name));
  }
  const auto root = rules_.find("root");
  ADDER_CHECK(root != rules_.end(), "grammar: line {}: expected a rule named 'root', got the end",
              line_of(text_.size()));
  source_.root = root->second.index;
  return std::move(source_);
}

GbnfParser::RuleUse& GbnfParser::rule_named(std::string_view name) {
  auto found = rules_.find(name);
  if (found == rules_.end()) {
    const uint32_t index = source_.add(std::string(name));
    found = rules_.emplace(name, RuleUse{index, position_ - name.size()}).first;
  }
  return found->second;
}

std::string_view GbnfParser::take_name() {
  const size_t begin = position_;
  while (is_name_character(peek())) ++position_;
  return text_.substr(begin, position_ - begin);
}

void GbnfParser::parse_rule() {
  if (!is_name_character(peek())) fail_expected("the name of a rule");
  const size_t begin = position_;
  const std::string_view name = take_name();
  RuleUse& rule = rule_named(name);
  if (rule.defined) {
    bad_input("grammar: line {}: expected one rule named {}, got a second one", line_of(begin),
              printable(name));
  }
  rule.defined = true;
  skip_space(false);
  if (!skip("::=")) fail_expected("'::='");
  skip_space(true);
  GrammarExpr body = parse_choice(0);
  source_.rules[rule.index].body = std::move(body);
  if (!at_end() && peek() != '\n' && peek() != '\r') {
    fail_expected("an item, '|' or the end of the line");
  }
}

GrammarExpr GbnfParser::parse_choice(uint32_t nesting) {
  if (nesting > Grammar::kMaxNesting) {
    fail_expected(fmt::format("at most {} groups inside each other", Grammar::kMaxNesting));
  }
  std::vector<GrammarExpr> parts;
  while (true) {
    parts.push_back(parse_sequence(nesting));
    const size_t line_end = position_;
    skip_space(true);
    if (!skip("|")) {
      position_ = line_end;
      return GrammarExpr::choice(std::move(parts));
    }
    skip_space(true);
  }
}

GrammarExpr GbnfParser::parse_sequence(uint32_t nesting) {
  std::vector<GrammarExpr> parts;
  while (auto item = parse_item(nesting)) {
    skip_space(nesting > 0);
    parts.push_back(parse_repeats(std::move(*item), nesting));
  }
  return GrammarExpr::sequence(std::move(parts));
}

std::optional<GrammarExpr> GbnfParser::parse_item(uint32_t nesting) {
  const char32_t c = peek();
  if (c == '"') return parse_literal();
  if (c == '[') return parse_class();
  if (is_name_character(c)) return GrammarExpr::call(rule_named(take_name()).index);
  if (c == '.') {
    ++position_;
    return GrammarExpr::char_class({{0, 0x10ffff}});
  }
  if (c == '(') {
    ++position_;
    skip_space(true);
    GrammarExpr group = parse_choice(nesting + 1);
    skip_space(true);
    if (!skip(")")) fail_expected("an item, '|' or ')'");
    return group;
  }
  return std::nullopt;
}

GrammarExpr GbnfParser::parse_literal() {
  std::string text;
  for (++position_; peek() != '"';) append_utf8(text, take_character());
  ++position_;
  return GrammarExpr::literal(text);
}

GrammarExpr GbnfParser::parse_class() {
  ++position_;
  const bool negated = skip("^");
  std::vector<CodePointRange> ranges;
  while (peek() != ']') {
    const char32_t first = take_character();
    char32_t last = first;
    // A minus before the bracket is itself.
    if (peek() == '-' && !text_.substr(position_).starts_with("-]")) {
      ++position_;
      const size_t begin = position_;
      last = take_character();
      if (last < first) {
        position_ = begin;
        fail_expected("the end of a range to be behind its beginning");
      }
    }
    ranges.push_back({first, last});
  }
  ranges = normalize_ranges(ranges);
  if (negated) ranges = complement_ranges(ranges);
  if (ranges.empty()) fail_expected("a class of at least one character");
  ++position_;
  return GrammarExpr::char_class(ranges);
}

GrammarExpr GbnfParser::parse_repeats(GrammarExpr item, uint32_t nesting) {
  for (uint32_t repeats = 1; !at_end(); ++repeats) {
    uint32_t min = 0, max = GrammarExpr::kUnbounded;
    const char32_t c = peek();
    if (c != '*' && c != '+' && c != '?' && c != '{') break;
    if (nesting + repeats > Grammar::kMaxNesting) {
      fail_expected(fmt::format("at most {} operators on one item", Grammar::kMaxNesting));
    }
    ++position_;
    if (c == '+') min = 1;
    if (c == '?') max = 1;
    if (c == '{') {
      skip_space(nesting > 0);
      min = max = take_count();
      skip_space(nesting > 0);
      if (skip(",")) {
        skip_space(nesting > 0);
        max = peek() == '}' ? GrammarExpr::kUnbounded : take_count();
        skip_space(nesting > 0);
      }
      if (peek() != '}') fail_expected("'}'");
      if (max < min) fail_expected(fmt::format("a largest count of at least {}", min));
      ++position_;
    }
    item = GrammarExpr::repeat(std::move(item), min, max);
    skip_space(nesting > 0);
  }
  return item;
}

uint32_t GbnfParser::take_count() {
  const size_t begin = position_;
  uint32_t count = 0;
  while (peek() >= '0' && peek() <= '9' && count <= Grammar::kMaxRepeat) {
    count = count * 10 + static_cast<uint32_t>(take() - '0');
  }
  if (begin == position_ || count > Grammar::kMaxRepeat) {
    position_ = begin;
    fail_expected(fmt::format("a count of at most {}", Grammar::kMaxRepeat));
  }
  return count;
}

char32_t GbnfParser::take_character() {
  if (at_end()) fail_expected("a quote or bracket that closes");
  if (peek() != '\\') return take();
  ++position_;
  constexpr std::pair<char, char32_t> kSimple[] = {{'n', '\n'},  {'r', '\r'}, {'t', '\t'},
                                                   {'\\', '\\'}, {'"', '"'},  {'[', '['},
                                                   {']', ']'},   {'-', '-'},  {'^', '^'}};
  for (const auto& [letter, meaning] : kSimple) {
    if (peek() != static_cast<uint8_t>(letter)) continue;
    ++position_;
    return meaning;
  }
  const char32_t kind = peek();
  const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  if (digits == 0) fail_expected("n, r, t, x, u, U or one of \\ \" [ ] - ^ after '\\'");
  ++position_;
  const size_t begin = position_;
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = hex_digit(peek());
    if (digit < 0) fail_expected(fmt::format("{} hexadecimal digits", digits));
    value = value * 16 + static_cast<char32_t>(digit);
    ++position_;
  }
  if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
    position_ = begin;
    fail_expected("the number of a Unicode character");
  }
  return value;
}

}  // namespace

std::shared_ptr<const Grammar> Grammar::parse(std::string_view gbnf) {
  return compile(GbnfParser(gbnf).parse());
}

}  // namespace adder
