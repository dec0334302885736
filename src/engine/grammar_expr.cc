#include "engine/grammar_expr.h"

#include <algorithm>
#include <utility>

namespace adder {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;

}  // namespace

std::vector<CodePointRange> normalize_ranges(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& range : ranges) {
    const CodePointRange below{range.first, std::min<char32_t>(range.last, 0xd7ff)};
    const CodePointRange above{std::max<char32_t>(range.first, 0xe000),
                               std::min(range.last, kLastCodePoint)};
    for (const CodePointRange& part : {below, above}) {
      if (part.first <= part.last) parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> merged;
  for (const CodePointRange& part : parts) {
    if (!merged.empty() && part.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, part.last);
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

std::vector<CodePointRange> complement_ranges(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> gaps;
  char32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) gaps.push_back({next, kLastCodePoint});
  return normalize_ranges(std::move(gaps));
}

std::vector<CodePointRange> common_ranges(const std::vector<CodePointRange>& a,
                                          const std::vector<CodePointRange>& b) {
  std::vector<CodePointRange> common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const CodePointRange both{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (both.first <= both.last) common.push_back(both);
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

GrammarExpr GrammarExpr::literal(std::string_view text) {
  GrammarExpr expr;
  expr.kind = Kind::kLiteral;
  expr.text = text;
  return expr;
}

GrammarExpr GrammarExpr::char_class(std::vector<CodePointRange> ranges) {
  GrammarExpr expr;
  expr.kind = Kind::kClass;
  expr.ranges = normalize_ranges(std::move(ranges));
  return expr;
}

GrammarExpr GrammarExpr::sequence(std::vector<GrammarExpr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  GrammarExpr expr;
  expr.parts = std::move(parts);
  return expr;
}

GrammarExpr GrammarExpr::choice(std::vector<GrammarExpr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  GrammarExpr expr;
  expr.kind = Kind::kChoice;
  expr.parts = std::move(parts);
  return expr;
}

GrammarExpr GrammarExpr::repeat(GrammarExpr part, uint32_t min, uint32_t max) {
  GrammarExpr expr;
  expr.kind = Kind::kRepeat;
  expr.parts.push_back(std::move(part));
  expr.min = min;
  expr.max = max;
  return expr;
}

GrammarExpr GrammarExpr::call(uint32_t rule) {
  GrammarExpr expr;
  expr.kind = Kind::kRule;
  expr.rule = rule;
  return expr;
}

uint32_t GrammarSource::add(std::string name, GrammarExpr body) {
  rules.push_back({std::move(name), std::move(body)});
  return static_cast<uint32_t>(rules.size() - 1);
}

}  // namespace adder
