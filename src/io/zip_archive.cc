#include "io/zip_archive.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/byte_reader.h"
#include "io/printable.h"

namespace adder {
namespace {

// "PK" and two more bytes, read as little-endian numbers.
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
// Lengths of the records without their names, extra fields and comments.
constexpr size_t kCentralBytes = 46, kEndBytes = 22, kLocator64Bytes = 20;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kSee64 = 0xffffffff;  // "the value stands in the zip64 extra field"
constexpr uint16_t kFlagEncrypted = 1 << 0, kFlagSizesFollow = 1 << 3, kFlagStrong = 1 << 6;
constexpr uint64_t kMaxEntries = 1 << 18;  // 262144; a checkpoint has one per tensor

// The end record stands last, behind it only its comment of at most 65535 bytes. A signature inside
// that comment is passed over: its comment length would not reach exactly the end of the file.
size_t find_end_record(std::span<const std::byte> image, const std::string& name) {
  if (image.size() >= kEndBytes) {
    const size_t last = image.size() - kEndBytes;
    const size_t first = last > 0xffff ? last - 0xffff : 0;
    for (size_t at = last + 1; at-- > first;) {
      ByteReader record(image.subspan(at), name);
      if (record.u32() != kEndSignature) continue;
      record.skip(16);
      if (record.u16() == record.remaining()) return at;
    }
  }
  bad_input("{}: no zip directory at its end (cut off, or not a zip)", name);
}

struct Directory {
  uint64_t offset, bytes, entries;
};

// The record of large archives; its counts and offsets have 64 bits.
Directory read_end64(std::span<const std::byte> image, uint64_t at, const std::string& name) {
  if (at > image.size()) bad_input("{}: zip64 end record lies outside the file", name);
  ByteReader record(image.subspan(static_cast<size_t>(at)), name);
  if (record.u32() != kEnd64Signature) bad_input("{}: no zip64 end record where expected", name);
  record.skip(8 + 2 + 2);  // its size, versions
  const uint32_t disk = record.u32(), directory_disk = record.u32();
  Directory out{};
  const uint64_t entries_here = record.u64();
  out.entries = record.u64();
  out.bytes = record.u64();
  out.offset = record.u64();
  if (disk != 0 || directory_disk != 0 || entries_here != out.entries) {
    fail(ErrorCode::kUnsupported, "{}: a zip in several parts", name);
  }
  return out;
}

// A locator in front of the end record says that a zip64 record counts instead of it.
Directory read_end(std::span<const std::byte> image, const std::string& name) {
  const size_t at = find_end_record(image, name);
  if (at >= kLocator64Bytes) {
    ByteReader locator(image.subspan(at - kLocator64Bytes), name);
    if (locator.u32() == kLocator64Signature) {
      const uint32_t disk = locator.u32();
      const uint64_t end64 = locator.u64();
      if (disk != 0 || locator.u32() > 1) {
        fail(ErrorCode::kUnsupported, "{}: a zip in several parts", name);
      }
      return read_end64(image, end64, name);
    }
  }
  ByteReader record(image.subspan(at + 4), name);
  const uint16_t disk = record.u16(), directory_disk = record.u16();
  const uint16_t entries_here = record.u16();
  Directory out{};
  out.entries = record.u16();
  out.bytes = record.u32();
  out.offset = record.u32();
  if (disk != 0 || directory_disk != 0 || entries_here != out.entries) {
    fail(ErrorCode::kUnsupported, "{}: a zip in several parts", name);
  }
  return out;
}

// What a local header and a directory entry have in common.
struct Header {
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t stored = 0, size = 0, offset = 0;
  std::string_view name;
};

// Replaces the fields that say "see zip64" by those of the extra field, which come in this order.
void apply_zip64(std::string_view extra, Header& header, bool has_offset,
                 const std::string& where) {
  ByteReader reader(std::as_bytes(std::span(extra)), where);
  while (reader.remaining() >= 4) {
    const uint16_t id = reader.u16();
    const uint16_t bytes = reader.u16();
    const auto body = reader.take(bytes);
    if (id != kZip64Extra) continue;
    ByteReader values(body, where);
    if (header.size == kSee64) header.size = values.u64();
    if (header.stored == kSee64) header.stored = values.u64();
    if (has_offset && header.offset == kSee64) header.offset = values.u64();
    return;
  }
}

// One entry of the directory, which is the authority on sizes; only stored entries pass.
Header read_central(ByteReader& reader, const std::string& name) {
  if (reader.u32() != kCentralSignature) bad_input("{}: damaged zip directory", name);
  Header header;
  reader.skip(4);  // versions
  header.flags = reader.u16();
  header.method = reader.u16();
  reader.skip(4);  // time, date
  header.crc = reader.u32();
  header.stored = reader.u32();
  header.size = reader.u32();
  const uint16_t name_bytes = reader.u16(), extra_bytes = reader.u16();
  const uint16_t comment_bytes = reader.u16();
  reader.skip(2 + 2 + 4);  // disk, attributes
  header.offset = reader.u32();
  header.name = reader.text(name_bytes);
  const std::string where = name + ": entry " + printable(header.name);
  apply_zip64(reader.text(extra_bytes), header, true, where);
  reader.skip(comment_bytes);
  if ((header.flags & (kFlagEncrypted | kFlagStrong)) != 0) {
    fail(ErrorCode::kUnsupported, "{}: encrypted", where);
  }
  if (header.method != 0) {
    fail(ErrorCode::kUnsupported, "{}: expected a stored entry, got compression method {}", where,
         header.method);
  }
  if (header.stored != header.size) {
    bad_input("{}: stored in {} bytes, but {} bytes long", where, header.stored, header.size);
  }
  return header;
}

// Begin of the entry's data, after its local header has been found to tell the same.
uint64_t check_local(std::span<const std::byte> image, const Header& central,
                     const std::string& where) {
  if (central.offset > image.size()) bad_input("{}: begins outside the file", where);
  ByteReader reader(image.subspan(static_cast<size_t>(central.offset)), where);
  if (reader.u32() != kLocalSignature) bad_input("{}: no local header where expected", where);
  Header local;
  reader.skip(2);
  local.flags = reader.u16();
  local.method = reader.u16();
  reader.skip(4);
  local.crc = reader.u32();
  local.stored = reader.u32();
  local.size = reader.u32();
  const uint16_t name_bytes = reader.u16(), extra_bytes = reader.u16();
  local.name = reader.text(name_bytes);
  apply_zip64(reader.text(extra_bytes), local, false, where);
  // A writer that streams leaves crc and sizes zero here and sets a flag; torch does so.
  const bool follow = (local.flags & kFlagSizesFollow) != 0;
  const auto same = [follow](uint64_t here, uint64_t there) {
    return here == there || (follow && here == 0);
  };
  if (local.name != central.name || local.method != central.method ||
      (local.flags & kFlagEncrypted) != 0 || !same(local.stored, central.stored) ||
      !same(local.size, central.size) || !same(local.crc, central.crc)) {
    bad_input("{}: its local header contradicts the zip directory", where);
  }
  return central.offset + reader.position();
}

}  // namespace

// Bytewise with a table: it only runs over descriptions of some 100 kB.
uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xedb88320u : 0u);
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = 0xffffffff;
  for (const std::byte b : bytes) {
    crc = kTable[(crc ^ std::to_integer<uint32_t>(b)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

ZipArchive ZipArchive::parse(std::span<const std::byte> image, const std::string& name) {
  const Directory directory = read_end(image, name);
  if (directory.offset > image.size() || directory.bytes > image.size() - directory.offset) {
    bad_input("{}: its zip directory lies outside the file", name);
  }
  if (directory.entries > kMaxEntries || directory.entries > directory.bytes / kCentralBytes) {
    bad_input("{}: its zip directory cannot hold {} entries", name, directory.entries);
  }
  ByteReader reader(
      image.subspan(static_cast<size_t>(directory.offset), static_cast<size_t>(directory.bytes)),
      name);
  ZipArchive archive;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // [begin, end) of header and data
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Header header = read_central(reader, name);
    const std::string where = name + ": entry " + printable(header.name);
    const uint64_t begin = check_local(image, header, where);
    if (header.size > directory.offset || begin > directory.offset - header.size) {
      bad_input("{}: its {} bytes run into the zip directory", where, header.size);
    }
    ranges.emplace_back(header.offset, begin + header.size);
    const Entry entry{image.subspan(static_cast<size_t>(begin), static_cast<size_t>(header.size)),
                      header.crc};
    if (!archive.entries_.emplace(header.name, entry).second) {
      bad_input("{}: appears twice", where);
    }
  }
  if (!reader.at_end()) bad_input("{}: bytes left over in the zip directory", name);
  // Two entries that share bytes never occur, and copies of unaligned storages would add up.
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) bad_input("{}: zip entries overlap", name);
  }
  return archive;
}

const ZipArchive::Entry* ZipArchive::find(std::string_view entry) const {
  const auto it = entries_.find(entry);
  return it == entries_.end() ? nullptr : &it->second;
}

}  // namespace adder
