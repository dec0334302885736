// A file mapped read-only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace adder {

// The mapping lives as long as the object. Pages are private and read-only: nobody can write to the
// file through it. A file that another process truncates afterwards raises SIGBUS on access, as
// with every mapping; checkpoints are replaced by rename, never rewritten in place.
class MappedFile {
 public:
  // Maps a regular file of at least one byte, symbolic links followed. Throws Error(kIo) when the
  // system refuses and Error(kBadInput) for directories, FIFOs, devices and empty files.
  static std::shared_ptr<const MappedFile> open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Lets the system drop the pages that lie inside `part`, a part of this file or not; they are
  // read again when touched. For data that has been copied: the mapping and the copy need not both
  // be in memory.
  void discard(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_;
  size_t size_;
};

}  // namespace adder
