// The part of the zip format that torch.save uses: stored entries, zip64 when large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace adder {

// CRC-32 as zip, gzip and PNG define it (polynomial 0xEDB88320, reflected).
uint32_t crc32(std::span<const std::byte> bytes);

class ZipArchive {
 public:
  struct Entry {
    std::span<const std::byte> data;  // into the image
    uint32_t crc;                     // as recorded; checked by whoever reads small entries
  };

  // Reads the central directory and verifies it against every local header. The image must outlive
  // the archive. Throws Error(kBadInput) on any contradiction, on duplicate or overlapping entries,
  // Error(kUnsupported) for compressed or encrypted entries and archives in several parts.
  static ZipArchive parse(std::span<const std::byte> image, const std::string& name);

  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const Entry* find(std::string_view entry) const;  // null when absent

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace adder
