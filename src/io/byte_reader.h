// Bounds-checked little-endian reading of untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace adder {

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A cursor over bytes; reading past the end throws Error(kBadInput) "<name>: cut off at byte N".
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), name_(name) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  bool at_end() const { return position_ == bytes_.size(); }

  std::span<const std::byte> take(uint64_t count) {
    if (count > remaining()) {
      bad_input("{}: cut off at byte {}: expected {} bytes more, got {}", name_, position_, count,
                remaining());
    }
    const auto out = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return out;
  }
  std::string_view text(uint64_t count) { return as_text(take(count)); }
  void skip(uint64_t count) { take(count); }
  uint8_t u8() { return static_cast<uint8_t>(little_endian(1)); }
  uint16_t u16() { return static_cast<uint16_t>(little_endian(2)); }
  uint32_t u32() { return static_cast<uint32_t>(little_endian(4)); }
  uint64_t u64() { return little_endian(8); }

  // The next line without its newline, which must come within `limit` bytes.
  std::string_view line(size_t limit) {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + position_,
                                remaining());
    const size_t length = rest.substr(0, limit).find('\n');
    if (length == rest.npos) bad_input("{}: byte {}: a line without end", name_, position_);
    position_ += length + 1;
    return rest.substr(0, length);
  }

 private:
  uint64_t little_endian(size_t count) {
    uint64_t value = 0;
    size_t shift = 0;
    for (const std::byte b : take(count)) {
      value |= std::to_integer<uint64_t>(b) << shift;
      shift += 8;
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  std::string_view name_;
  size_t position_ = 0;
};

}  // namespace adder
