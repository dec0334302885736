#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace adder {
namespace {

// The character that ends at `end`; an invalid byte stands for itself.
Utf8Part previous_utf8(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    const Utf8Part part = next_utf8(text.substr(0, end), end - length);
    if (part.kind == Utf8Kind::kValid && part.length == length) return part;
  }
  return {0xfffd, 1, Utf8Kind::kInvalid};
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word_character(previous_utf8(text, text.size()).code_point);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_character(next_utf8(text, 0).code_point);
}

// Start of the white space that ends at `end`, not before `limit`.
size_t blanks_before(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const Utf8Part part = previous_utf8(text, end);
    if (!is_white_space(part.code_point)) break;
    end -= part.length;
  }
  return std::max(end, limit);
}

size_t blanks_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Part part = next_utf8(text, begin);
    if (!is_white_space(part.code_point)) break;
    begin += part.length;
  }
  return begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    auto& range = by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

// Narrows the range of tokens that agree with the text, byte by byte. Sorted order puts the token
// that ends after a byte in front of the ones that go on.
const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t begin,
                                                const AllowSpecial& allow_special) const {
  auto [low, high] = by_first_byte_[static_cast<uint8_t>(text[begin])];
  const AddedToken* longest = nullptr;
  for (size_t length = 1; low < high; ++length) {
    while (low < high && tokens_[low].content.size() == length) {
      const AddedToken& token = tokens_[low++];
      if (!token.special || allow_special(begin, begin + length)) longest = &token;
    }
    if (begin + length >= text.size()) break;
    const auto next = static_cast<uint8_t>(text[begin + length]);
    const auto byte_at = [length](const AddedToken& token) {
      return static_cast<uint8_t>(token.content[length]);
    };
    const auto first = tokens_.begin() + low, last = tokens_.begin() + high;
    const auto lower = std::partition_point(
        first, last, [&](const AddedToken& token) { return byte_at(token) < next; });
    const auto upper = std::partition_point(
        lower, last, [&](const AddedToken& token) { return byte_at(token) <= next; });
    low = static_cast<uint32_t>(lower - tokens_.begin());
    high = static_cast<uint32_t>(upper - tokens_.begin());
  }
  return longest;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::split(
    std::string_view text, const AllowSpecial& allow_special) const {
  std::vector<Piece> pieces;
  size_t done = 0;  // pieces cover text[0, done)
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = longest_at(text, at, allow_special);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token->lstrip) begin = blanks_before(text, begin, std::min(done, begin));
    if (token->rstrip) end = blanks_after(text, end);
    if (done < begin) pieces.push_back({-1, done, begin});
    pieces.push_back({token->id, begin, end});
    done = std::max(done, end);
  }
  if (done < text.size()) pieces.push_back({-1, done, text.size()});
  return pieces;
}

}  // namespace adder
