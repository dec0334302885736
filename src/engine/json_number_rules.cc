// Numbers between limits, for JSON (json_rules.h).
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/json_rules.h"

namespace adder {
namespace {

using Expr = GrammarExpr;

Expr digit(char first, char last) {
  return Expr::char_class({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

// Strings of digits from low to high, which have the same length.
Expr same_length(std::string_view low, std::string_view high) {
  const size_t rest = low.size() - 1;
  if (rest == 0) return digit(low[0], high[0]);
  const std::string zeros(rest, '0'), nines(rest, '9');
  char first = low[0], last = high[0];
  if (first == last) {
    return Expr::sequence(digit(first, first), same_length(low.substr(1), high.substr(1)));
  }
  std::vector<Expr> parts;
  if (low.substr(1) != zeros) {
    parts.push_back(Expr::sequence(digit(first, first), same_length(low.substr(1), nines)));
    ++first;
  }
  if (high.substr(1) != nines) {
    parts.push_back(Expr::sequence(digit(last, last), same_length(zeros, high.substr(1))));
    --last;
  }
  if (first <= last) {
    parts.push_back(Expr::sequence(digit(first, last), json_digits(rest, rest)));
  }
  return Expr::choice(std::move(parts));
}

// 0 <= low <= high <= kMaxJsonInteger
Expr whole_numbers(int64_t low, int64_t high) {
  std::vector<Expr> parts;
  int64_t first = 0, last = 9;  // of the numbers with as many digits
  while (first <= high) {
    const int64_t a = std::max(low, first), b = std::min(high, last);
    if (a <= b) parts.push_back(same_length(std::to_string(a), std::to_string(b)));
    if (last >= kMaxJsonInteger) break;
    first = last + 1;
    last = last * 10 + 9;
  }
  return Expr::choice(std::move(parts));
}

// Numbers without a sign from low to high, with fractions of up to `places` digits.
std::optional<Expr> magnitudes(JsonLimit low, JsonLimit high, size_t places) {
  const auto and_zeros = [&](int64_t whole) {
    const Expr zeros = Expr::repeat(literal("0"), 1, static_cast<uint32_t>(places));
    return Expr::sequence(literal(std::to_string(whole)),
                          Expr::optional(Expr::sequence(literal("."), zeros)));
  };
  std::vector<Expr> parts;
  if (low.whole == high.whole) {
    if (low.excluded || high.excluded) return std::nullopt;
    return and_zeros(low.whole);
  }
  if (low.whole > high.whole) return std::nullopt;
  const int64_t first = low.whole + (low.excluded ? 1 : 0);
  if (first < high.whole) {
    const Expr fraction = Expr::sequence(literal("."), json_digits(1, places));
    parts.push_back(Expr::sequence(whole_numbers(first, high.whole - 1), Expr::optional(fraction)));
  }
  if (low.excluded) {
    const size_t half = (places - 1) / 2;
    parts.push_back(Expr::sequence(literal(std::to_string(low.whole) + "."),
                                   Expr::repeat(literal("0"), 0, static_cast<uint32_t>(half)),
                                   digit('1', '9'), json_digits(0, half)));
  }
  if (!high.excluded) parts.push_back(and_zeros(high.whole));
  return Expr::choice(std::move(parts));
}

}  // namespace

Expr json_integers(int64_t low, int64_t high) {
  std::vector<Expr> parts;
  if (low < 0) {
    parts.push_back(Expr::sequence(literal("-"), whole_numbers(high < 0 ? -high : 1, -low)));
  }
  if (high >= 0) parts.push_back(whole_numbers(std::max<int64_t>(low, 0), high));
  return Expr::choice(std::move(parts));
}

std::optional<Expr> json_numbers(std::optional<JsonLimit> low, std::optional<JsonLimit> high) {
  constexpr int64_t kFarthest = 999'999'999'999'999;
  // A double holds 15 digits: as many as the limit has before the point are not left behind it.
  size_t places = 15;
  for (const auto& limit : {low, high}) {
    if (!limit || !limit->excluded) continue;
    const size_t length = std::to_string(limit->whole).size() - (limit->whole < 0 ? 1 : 0);
    places = std::min(places, length < 14 ? 15 - length : 1);
  }
  const JsonLimit a = low && low->whole >= -kFarthest ? *low : JsonLimit{-kFarthest};
  const JsonLimit b = high && high->whole <= kFarthest ? *high : JsonLimit{kFarthest};
  std::vector<Expr> parts;
  if (a.whole < 0) {
    const JsonLimit near = b.whole <= 0 ? JsonLimit{-b.whole, b.excluded} : JsonLimit{0};
    if (auto negative = magnitudes(near, {-a.whole, a.excluded}, places)) {
      parts.push_back(Expr::sequence(literal("-"), std::move(*negative)));
    }
  }
  if (b.whole >= 0) {
    const JsonLimit near = a.whole >= 0 ? a : JsonLimit{0};
    if (auto positive = magnitudes(near, b, places)) parts.push_back(std::move(*positive));
  }
  if (parts.empty()) return std::nullopt;
  return Expr::choice(std::move(parts));
}

}  // namespace adder
