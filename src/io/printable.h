// Names that come out of files, made safe to print in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adder {

// 'text' in single quotes: bytes outside printable ASCII as \xNN, cut with "..." after `limit`.
std::string printable(std::string_view text, size_t limit = 80);

// A tensor name as every known format writes it: 1..512 bytes of printable ASCII without blanks.
bool is_sane_name(std::string_view name);

}  // namespace adder
