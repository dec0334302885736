#include "io/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace adder {
namespace {

constexpr size_t kMaxNameBytes = 512;

}  // namespace

// Escape sequences would reach the terminal of whoever reads the message.
std::string printable(std::string_view text, size_t limit) {
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > limit ? "...'" : "'";
  return out;
}

bool is_sane_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace adder
