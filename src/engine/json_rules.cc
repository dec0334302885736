#include "engine/json_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "text/unicode.h"

namespace adder {
namespace {

using Expr = GrammarExpr;

// Characters that stand for themselves inside a string.
const std::vector<CodePointRange>& plain_characters() {
  static const std::vector<CodePointRange> ranges =
      normalize_ranges({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}});
  return ranges;
}

// The rest of a key, its closing quote included, behind the first `depth` characters that all of
// `names` share. Names are ordered. `end`: any characters, then the quote.
Expr rest_of_other_key(std::span<const std::u32string> names, size_t depth, const Expr& wide,
                       const Expr& end) {
  std::vector<Expr> parts;
  std::vector<CodePointRange> taken;
  if (names.empty() || names.front().size() > depth) {
    parts.push_back(literal("\""));
  } else {
    names = names.subspan(1);  // the one that ends here
  }
  while (!names.empty()) {
    const char32_t c = names.front()[depth];
    size_t count = 1;
    while (count < names.size() && names[count][depth] == c) ++count;
    std::string character;
    append_utf8(character, c);
    parts.push_back(Expr::sequence(literal(character),
                                   rest_of_other_key(names.first(count), depth + 1, wide, end)));
    taken.push_back({c, c});
    names = names.subspan(count);
  }
  taken = normalize_ranges(taken);
  std::vector<CodePointRange> free = common_ranges(plain_characters(), complement_ranges(taken));
  if (taken.empty() || taken.back().last < 0x80) {
    free = common_ranges(free, {{0, 0x7f}});
    parts.push_back(Expr::sequence(wide, end));
  }
  parts.push_back(Expr::sequence(Expr::char_class(free), end));
  return Expr::choice(std::move(parts));
}

}  // namespace

Expr json_blank() {
  return Expr::optional(literal(" "));
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump();
}

Expr json_characters(const std::vector<CodePointRange>& ranges) {
  std::vector<Expr> parts;
  const auto plain = common_ranges(ranges, plain_characters());
  if (!plain.empty()) parts.push_back(Expr::char_class(plain));
  for (const CodePointRange& range : common_ranges(ranges, complement_ranges(plain_characters()))) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      const std::string quoted = json_quoted(std::string(1, static_cast<char>(c)));
      parts.push_back(literal(std::string_view(quoted).substr(1, quoted.size() - 2)));
    }
  }
  return Expr::choice(std::move(parts));
}

Expr JsonRules::character() {
  if (!character_) {
    const auto hex = [](uint32_t count) {
      return Expr::repeat(Expr::char_class({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}), count, count);
    };
    const Expr d = Expr::char_class({{'d', 'd'}, {'D', 'D'}});
    const Expr low_half =
        Expr::sequence(literal("\\u"), d, Expr::char_class({{'c', 'f'}, {'C', 'F'}}), hex(2));
    const Expr unit = Expr::choice(
        Expr::sequence(
            Expr::char_class({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), hex(3)),
        Expr::sequence(d, Expr::char_class({{'0', '7'}}), hex(2)),
        Expr::sequence(d, Expr::char_class({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex(2),
                       low_half));
    const Expr simple = Expr::char_class({{'"', '"'},
                                          {'\\', '\\'},
                                          {'/', '/'},
                                          {'b', 'b'},
                                          {'f', 'f'},
                                          {'n', 'n'},
                                          {'r', 'r'},
                                          {'t', 't'}});
    character_ = source_.add(
        "JSON character",
        Expr::choice(Expr::char_class(plain_characters()),
                     Expr::sequence(literal("\\"),
                                    Expr::choice(simple, Expr::sequence(literal("u"), unit)))));
  }
  return Expr::call(*character_);
}

Expr JsonRules::string() {
  if (!string_) {
    string_ = source_.add(
        "JSON string", Expr::sequence(literal("\""), Expr::repeat(character(), 0), literal("\"")));
  }
  return Expr::call(*string_);
}

Expr JsonRules::number() {
  if (!number_) {
    const Expr whole = Expr::choice(
        literal("0"), Expr::sequence(Expr::char_class({{'1', '9'}}), json_digits(0, 15)));
    const Expr fraction = Expr::sequence(literal("."), json_digits(1, 16));
    const Expr exponent = Expr::sequence(Expr::char_class({{'e', 'e'}, {'E', 'E'}}),
                                         Expr::optional(Expr::char_class({{'+', '+'}, {'-', '-'}})),
                                         json_digits(1, 2));
    number_ = source_.add(
        "JSON number", Expr::sequence(Expr::optional(literal("-")), whole, Expr::optional(fraction),
                                      Expr::optional(exponent)));
  }
  return Expr::call(*number_);
}

Expr JsonRules::integer() {
  if (!integer_) {
    integer_ = source_.add("JSON integer",
                           Expr::choice(literal("0"), Expr::sequence(Expr::optional(literal("-")),
                                                                     Expr::char_class({{'1', '9'}}),
                                                                     json_digits(0, 17))));
  }
  return Expr::call(*integer_);
}

Expr JsonRules::value() {
  if (!value_) {
    value_ = source_.add("JSON value");  // there before those that call it
    Expr body = Expr::choice(object(), array(), string(), number(), literal("true"),
                             literal("false"), literal("null"));
    source_.rules[*value_].body = std::move(body);
  }
  return Expr::call(*value_);
}

Expr JsonRules::object() {
  if (!object_) {
    object_ = source_.add("JSON object");
    const Expr member = Expr::sequence(string(), literal(":"), json_blank(), value());
    const Expr more = Expr::repeat(Expr::sequence(literal(","), json_blank(), member), 0);
    source_.rules[*object_].body =
        Expr::sequence(literal("{"), Expr::optional(Expr::sequence(member, more)), literal("}"));
  }
  return Expr::call(*object_);
}

Expr JsonRules::array() {
  if (!array_) {
    array_ = source_.add("JSON array");
    const Expr more = Expr::repeat(Expr::sequence(literal(","), json_blank(), value()), 0);
    source_.rules[*array_].body =
        Expr::sequence(literal("["), Expr::optional(Expr::sequence(value(), more)), literal("]"));
  }
  return Expr::call(*array_);
}

Expr JsonRules::other_key(const std::vector<std::string>& names) {
  if (names.empty()) return string();
  std::vector<std::u32string> characters;
  for (const std::string& name : names) {
    std::u32string& key = characters.emplace_back();
    for (size_t i = 0; i < name.size();) {
      const Utf8Part part = next_utf8(name, i);
      key.push_back(part.code_point);
      i += part.length;
    }
    // A key with an escape in it cannot come up anyway.
    const bool plain = std::all_of(key.begin(), key.end(),
                                   [](char32_t c) { return c >= 0x20 && c != '"' && c != '\\'; });
    if (!plain) characters.pop_back();
  }
  std::sort(characters.begin(), characters.end());
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  // The same behind every character of every name, so they are rules.
  if (!wide_) wide_ = source_.add("wide character", Expr::char_class({{0x80, 0x10ffff}}));
  if (!key_end_) {
    key_end_ = source_.add(
        "JSON key",
        Expr::sequence(Expr::repeat(Expr::char_class(plain_characters()), 0), literal("\"")));
  }
  return Expr::sequence(
      literal("\""), rest_of_other_key(characters, 0, Expr::call(*wide_), Expr::call(*key_end_)));
}

}  // namespace adder
