#include "engine/sealed_file.h"

#include <array>
#include <cstring>

#include "core/error.h"
#include "engine/atomic_file.h"
#include "io/sha256.h"

namespace adder {
namespace {

constexpr size_t kMagic = 8;
constexpr size_t kPreamble = kMagic + 2 * sizeof(uint32_t);
constexpr size_t kDigest = 32;

std::array<std::byte, kDigest> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_bytes();
}

uint32_t read_u32(std::span<const std::byte> bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

JsonValue parse_header(const SealedKind& kind, std::span<const std::byte> bytes,
                       const std::string& name) {
  if (bytes.size() < kPreamble + kDigest ||
      std::memcmp(bytes.data(), kind.magic.data(), kMagic) != 0) {
    bad_input("{}: not a {}: expected it to begin with '{}'", name, kind.name, kind.magic);
  }
  const uint32_t version = read_u32(bytes, kMagic);
  if (version != kind.version) {
    bad_input("{}: field 'version': expected {}, got {}", name, kind.version, version);
  }
  const size_t header_bytes = read_u32(bytes, kMagic + sizeof(uint32_t));
  if (header_bytes > kind.max_header || header_bytes > bytes.size() - kPreamble - kDigest) {
    bad_input("{}: truncated or damaged: the header says {} bytes", name, header_bytes);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kPreamble;
  return JsonValue::parse(std::string_view(text, header_bytes), name);
}

}  // namespace

SealedWriter::SealedWriter(const SealedKind& kind, std::string_view header, size_t payload_bytes) {
  ADDER_CHECK(header.size() <= kind.max_header, "{}: expected a header of at most {} bytes, got {}",
              kind.name, kind.max_header, header.size());
  image_.reserve(kPreamble + header.size() + payload_bytes + kDigest);
  const auto header_bytes = static_cast<uint32_t>(header.size());
  append(std::span(kind.magic));
  append(std::span(&kind.version, 1));
  append(std::span(&header_bytes, 1));
  append(std::span(header));
}

std::span<std::byte> SealedWriter::extend(size_t bytes) {
  image_.resize(image_.size() + bytes);
  return std::span(image_).last(bytes);
}

std::vector<std::byte> SealedWriter::seal() {
  const auto digest = sha256(image_);
  append(std::span<const std::byte>(digest));
  return std::move(image_);
}

void SealedWriter::write(const std::string& file) {
  const std::vector<std::byte> image = seal();
  AtomicFile out(file);
  out.write(image);
  out.commit();
}

SealedReader::SealedReader(const SealedKind& kind, std::span<const std::byte> bytes,
                           const std::string& name)
    : name_(name), bytes_(bytes), header_(parse_header(kind, bytes, name)) {
  begin_ = kPreamble + read_u32(bytes, kMagic + sizeof(uint32_t));
}

size_t SealedReader::size_field(std::string_view key) const {
  const int64_t value = header_.get_int(key).value_or(-1);
  if (value < 0 || value > (int64_t{1} << 50)) {
    bad_input("{}: field '{}': expected a size, got {}", name_, key, value);
  }
  return static_cast<size_t>(value);
}

std::span<const std::byte> SealedReader::payload(size_t expected) const {
  if (bytes_.size() != begin_ + expected + kDigest) {
    bad_input("{}: truncated or damaged: expected {} bytes, got {}", name_,
              begin_ + expected + kDigest, bytes_.size());
  }
  const auto digest = sha256(bytes_.first(bytes_.size() - kDigest));
  if (std::memcmp(digest.data(), bytes_.last(kDigest).data(), kDigest) != 0) {
    bad_input("{}: damaged: its SHA-256 does not match its contents", name_);
  }
  return bytes_.subspan(begin_, expected);
}

}  // namespace adder
