#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace adder {

Utf8Part next_utf8(std::string_view text, size_t position) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + position;
  const size_t left = text.size() - position;
  const uint8_t lead = bytes[0];
  if (lead < 0x80) return {lead, 1, Utf8Kind::kValid};
  const Utf8Part invalid{0xfffd, 1, Utf8Kind::kInvalid};
  if (lead < 0xc2 || lead > 0xf4) return invalid;
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  char32_t value = lead & (0xff >> (length + 1));
  for (int i = 1; i < length; ++i) {
    const auto so_far = static_cast<uint8_t>(i);
    if (static_cast<size_t>(i) >= left) return {0xfffd, so_far, Utf8Kind::kIncomplete};
    if (bytes[i] < low || bytes[i] > high) return {0xfffd, so_far, Utf8Kind::kInvalid};
    value = value << 6 | (bytes[i] & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {value, static_cast<uint8_t>(length), Utf8Kind::kValid};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    // Eight ASCII bytes at a time.
    while (text.size() - position >= 8) {
      uint64_t word;
      std::memcpy(&word, text.data() + position, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      position += 8;
    }
    if (position == text.size()) break;
    const Utf8Part part = next_utf8(text, position);
    if (part.kind != Utf8Kind::kValid) break;
    position += part.length;
  }
  return position;
}

void append_utf8(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(next_utf8(text, 0).length);
  }
  return out;
}

namespace {

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// Every code point below U+0300 is its own NFC, and no mark is among them.
bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

std::string normalize_utf8(std::string_view text, NormalForm form) {
  if (form == NormalForm::kNfc ? surely_nfc(text) : is_ascii(text)) return std::string(text);
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = next_utf8(text, position);
    position += part.length;
    utf8proc_int32_t buffer[32];  // the longest decomposition (U+FDFA) has 18 code points
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(part.code_point), buffer, 32, options, &boundary);
    ADDER_CHECK(count >= 0 && count <= 32, "normalize: U+{:04X} cannot be decomposed",
                static_cast<uint32_t>(part.code_point));
    points.insert(points.end(), buffer, buffer + count);
  }
  // Canonical order: marks sorted by class. utf8proc sorts by insertion, which is quadratic in the
  // length of a run of marks, so that a hostile megabyte would take minutes.
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if_not(run, points.end(), is_starter);
    const auto end = std::find_if(run, points.end(), is_starter);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
  if (compose) {
    const auto composed = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ADDER_CHECK(composed >= 0, "normalize: the text cannot be composed");
    points.resize(static_cast<size_t>(composed));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t point : points) append_utf8(out, static_cast<char32_t>(point));
  return out;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c == 0x200c || c == 0x200d) return true;
  // Enclosed letters are symbols by class but have the property Alphabetic.
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
      (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189)) {
    return true;
  }
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

}  // namespace adder
