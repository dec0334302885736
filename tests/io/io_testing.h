// Helpers of the io tests: temporary files, expected errors, and writers for containers that can
// be told to write nonsense.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/tensor_file.h"

namespace adder::testing {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Appends `count` bytes of a little-endian number; more than 8 are zero.
inline void put(std::string& out, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
}

// A copy whose begin has the given remainder modulo 64.
class PlacedCopy {
 public:
  PlacedCopy(std::string_view data, size_t remainder) : memory_(data.size() + 128, '\0') {
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    offset_ = (64 - begin % 64) % 64 + remainder;
    data.copy(memory_.data() + offset_, data.size());
    size_ = data.size();
  }
  std::span<const std::byte> bytes() const {
    return as_bytes(std::string_view(memory_).substr(offset_, size_));
  }

 private:
  std::string memory_;
  size_t offset_ = 0, size_ = 0;
};

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "adder_io_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string path(std::string_view name) const { return (path_ / name).string(); }
  std::string write(std::string_view name, std::string_view data) const {
    std::ofstream(path(name), std::ios::binary)
        .write(data.data(), static_cast<std::streamsize>(data.size()));
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The call must throw Error with this code, and its one-line message must hold `part`.
template <typename Call>
void expect_error(Call&& call, ErrorCode code, std::string_view part) {
  try {
    call();
    ADD_FAILURE() << "expected an error with: " << part;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << message;
    EXPECT_NE(message.find(part), message.npos) << "got: " << message << "\nwant: " << part;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
  }
}
template <typename Call>
void expect_bad_input(Call&& call, std::string_view part) {
  expect_error(std::forward<Call>(call), ErrorCode::kBadInput, part);
}

// The call may succeed or throw Error; anything else (another exception, a signal) fails the test.
template <typename Call>
void expect_contained(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
  }
}

// A safetensors image with this header text and data.
inline std::string safetensors(std::string_view header, std::string_view data) {
  std::string out;
  put(out, header.size(), 8);
  return out.append(header).append(data);
}

// Assembles pickles opcode by opcode.
class PickleWriter {
 public:
  std::string bytes = "\x80\x02";

  PickleWriter& op(std::string_view raw) {
    bytes += raw;
    return *this;
  }
  PickleWriter& text(std::string_view value) {  // BINUNICODE
    bytes += 'X';
    put(bytes, value.size(), 4);
    return op(value);
  }
  PickleWriter& integer(int64_t value) {  // LONG1 of 8 bytes
    op("\x8a\x08");
    put(bytes, static_cast<uint64_t>(value), 8);
    return *this;
  }
  PickleWriter& global(std::string_view module, std::string_view name) {
    return op("c").op(module).op("\n").op(name).op("\n");
  }
  PickleWriter& integers(const std::vector<int64_t>& values) {
    op("(");
    for (const int64_t value : values) integer(value);
    return op("t");
  }
  PickleWriter& storage(std::string_view type, std::string_view key, int64_t size) {
    op("(").text("storage").global("torch", type).text(key).text("cpu").integer(size);
    return op("tQ");
  }
  PickleWriter& tensor(std::string_view type, std::string_view key, int64_t storage_size,
                       int64_t offset, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& stride) {
    global("torch._utils", "_rebuild_tensor_v2").op("(").storage(type, key, storage_size);
    integer(offset).integers(shape).integers(stride);
    return op("\x89").global("collections", "OrderedDict").op(")RtR");
  }
};

// A zip of stored entries as torch.save writes it, with fields that tests may falsify.
struct ZipEntry {
  std::string name, data;
  bool sizes_follow = false;  // crc and sizes zero in the local header, flag bit 3
  bool zip64 = false;         // sizes and offset in extra fields
  size_t padding = 0;         // extra bytes in front of the data
  int64_t central_size_delta = 0;
  int64_t local_size_delta = 0;
  uint32_t crc_xor = 0;
  uint16_t method = 0, flags = 0;
  std::string local_name;  // when not empty, the name in the local header
};

// Throws std::runtime_error when there is none of this name.
inline const StoredTensor& find(const TensorFile& file, std::string_view name) {
  const auto it = std::find_if(file.tensors.begin(), file.tensors.end(),
                               [&](const StoredTensor& t) { return t.name == name; });
  if (it == file.tensors.end()) throw std::runtime_error("no such tensor");
  return *it;
}

uint32_t crc32_bitwise(std::string_view data);
std::string make_zip(const std::vector<ZipEntry>& entries, bool zip64_end = false);

}  // namespace adder::testing
