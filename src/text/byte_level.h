// GPT-2's spelling of bytes as printable characters, as used in the files of byte-level BPE.
//
// Bytes '!'..'~', 0xA1..0xAC and 0xAE..0xFF stand for themselves (as code points); the other 68
// are U+0100, U+0101, ... in increasing order of the byte, so that a blank is U+0120.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adder {

// The character of a byte: at most U+0143.
char32_t byte_to_character(uint8_t byte);

// Bytes that the characters stand for; nothing when one of them is not in the alphabet.
std::optional<std::string> characters_to_bytes(std::string_view text);

}  // namespace adder
