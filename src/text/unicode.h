// UTF-8, Unicode classes and normal forms (Unicode 14, from utf8proc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adder {

enum class Utf8Kind : uint8_t {
  kValid,
  kInvalid,     // the bytes can never become a character, whatever follows
  kIncomplete,  // the text ends inside a character that is well-formed so far
};

struct Utf8Part {
  char32_t code_point;  // U+FFFD unless kind is kValid
  uint8_t length;       // bytes, >= 1
  Utf8Kind kind;
};

// The character, or the maximal invalid part (Unicode 14, section 3.9), that starts at
// text[position]; position < text.size().
Utf8Part next_utf8(std::string_view text, size_t position);

// Length of the longest prefix that is whole valid UTF-8 characters.
size_t valid_utf8_prefix(std::string_view text);
inline bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

void append_utf8(std::string& out, char32_t code_point);
inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

// The text with one U+FFFD for each maximal invalid part.
std::string replace_invalid_utf8(std::string_view text);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// `text` must be valid UTF-8. O(n log n) for any input, also for long runs of combining marks.
std::string normalize_utf8(std::string_view text, NormalForm form);

bool is_numeric(char32_t c);         // classes Nd, Nl, No
bool is_punctuation(char32_t c);     // class P, and the ASCII symbols $ + < = > ^ ` | ~
bool is_white_space(char32_t c);     // property White_Space
bool is_word_character(char32_t c);  // Alphabetic, M, Nd, Pc and the joiners: Rust's \w

}  // namespace adder
