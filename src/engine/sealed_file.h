// The container of Adder's own state files, little endian: 8 bytes that name the kind, u32 version,
// u32 header bytes, header (JSON), payload, and the SHA-256 of everything before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_lenient.h"

namespace adder {

struct SealedKind {
  std::string_view magic;  // 8 bytes
  uint32_t version;
  size_t max_header;      // bytes
  std::string_view name;  // "state file", for messages
};

// Collects a file in memory; write() replaces `file` whole or not at all. Throws Error(kIo).
class SealedWriter {
 public:
  SealedWriter(const SealedKind& kind, std::string_view header, size_t payload_bytes);
  // The next bytes of the payload.
  std::span<std::byte> extend(size_t bytes);
  template <typename T>
  void append(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    const auto to = extend(bytes.size());
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  // The whole file, with its digest. Ends the collecting, as write() does.
  std::vector<std::byte> seal();
  void write(const std::string& file);

 private:
  std::vector<std::byte> image_;
};

// Throws Error(kBadInput) naming the file when it is no such file, of another version, or when its
// header does not fit or parse.
class SealedReader {
 public:
  SealedReader(const SealedKind& kind, std::span<const std::byte> bytes, const std::string& name);

  const JsonValue& header() const { return header_; }
  // A field that is a count or a size. Throws Error(kBadInput) when it is none.
  size_t size_field(std::string_view key) const;
  // Checks that the payload has this size and the digest of what was written.
  std::span<const std::byte> payload(size_t expected) const;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
  size_t begin_ = 0;  // of the payload
  JsonValue header_;
};

}  // namespace adder
