#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace adder {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> to_character{};
  std::array<int16_t, 0x144> to_byte{};

  Alphabet() {
    to_byte.fill(-1);
    uint16_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const auto character = printable ? static_cast<uint16_t>(byte) : next++;
      to_character[static_cast<size_t>(byte)] = character;
      to_byte[character] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return alphabet().to_character[byte];
}

std::optional<std::string> characters_to_bytes(std::string_view text) {
  const Alphabet& table = alphabet();
  std::string bytes;
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = next_utf8(text, position);
    position += part.length;
    if (part.code_point >= table.to_byte.size()) return std::nullopt;
    const int16_t byte = table.to_byte[part.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace adder
