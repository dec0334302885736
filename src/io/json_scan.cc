#include "io/json_scan.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace adder {
namespace {

constexpr size_t kMaxBytes = size_t{100} << 20;
constexpr size_t kMaxStringBytes = size_t{16} << 20;
// The tree takes 40 to 90 bytes for a value or key, so that it stays below 100 MB. The index of the
// largest sharded checkpoints has some 100 000 names; a safetensors header has 12 per tensor.
constexpr size_t kMaxValues = 1'000'000;
constexpr int kMaxDepth = 64;

// Characters of numbers, literals and misspelt ones, so that "Infinity2" is one word, not two.
bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '+' || c == '.' || c == '_';
}

// End of the string that begins at `begin` (its opening quote): one past the closing quote, or the
// end of the text when there is none (the parser will say so).
size_t string_end(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size());
}

}  // namespace

std::optional<double> special_number(std::string_view word) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "NaN" || word == "nan") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = word.starts_with('-');
  if (negative || word.starts_with('+')) word.remove_prefix(1);
  if (word == "Infinity" || word == "inf") return negative ? -kInfinity : kInfinity;
  return std::nullopt;
}

std::pair<size_t, size_t> JsonScan::locate(size_t position) const {
  // The parser counts the byte it stopped at, so the last byte read is one before. Quotes added
  // before that byte do not exist in the source.
  size_t byte = position > 0 ? position - 1 : 0;
  for (const Bare& word : bare) {
    if (word.source_byte >= byte) break;
    byte -= std::min<size_t>(2, byte - word.source_byte);
  }
  byte = std::min(byte, source.size());
  const std::string_view before = source.substr(0, byte);
  const auto lines = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t newline = before.rfind('\n');
  return {lines + 1, newline == before.npos ? byte + 1 : byte - newline};
}

JsonScan scan_json(std::string_view source, const std::string& name) {
  if (source.size() > kMaxBytes) {
    bad_input("{}: expected at most {} bytes of JSON, got {}", name, kMaxBytes, source.size());
  }
  JsonScan scan;
  if (source.starts_with("\xef\xbb\xbf")) source.remove_prefix(3);
  scan.source = source;
  size_t strings = 0, values = 0, copied = 0;
  int depth = 0;
  // Only strings, words and brackets matter here; whether they form JSON is the parser's business.
  for (size_t i = 0; i < source.size();) {
    const char c = source[i];
    if (c == '"') {
      const size_t end = string_end(source, i);
      if (end - i > kMaxStringBytes) {
        bad_input("{}: byte {}: a string is longer than {} bytes", name, i, kMaxStringBytes);
      }
      ++strings;
      ++values;
      i = end;
    } else if (is_word_char(c)) {
      size_t end = i + 1;
      while (end < source.size() && is_word_char(source[end])) ++end;
      const std::string_view word = source.substr(i, end - i);
      if (word == "Infinity" || word == "-Infinity" || word == "NaN") {
        scan.bare.push_back({i, strings++, *special_number(word)});
        scan.rewritten.append(source, copied, i - copied);
        scan.rewritten.append("\"").append(word).append("\"");
        copied = end;
      }
      ++values;
      i = end;
    } else {
      if (c == '[' || c == '{') {
        if (++depth > kMaxDepth) {
          bad_input("{}: byte {}: nested deeper than {} levels", name, i, kMaxDepth);
        }
        ++values;
      } else if (c == ']' || c == '}') {
        --depth;
      } else if (c == '\0') {  // the parser would take it for the end of the text
        const auto [line, column] = scan.locate(i + 1 + 2 * scan.bare.size());
        bad_input("{}:{}:{}: malformed JSON: a zero byte", name, line, column);
      }
      ++i;
    }
    if (values > kMaxValues) bad_input("{}: more than {} JSON values", name, kMaxValues);
  }
  if (!scan.bare.empty()) scan.rewritten.append(source, copied);
  return scan;
}

}  // namespace adder
