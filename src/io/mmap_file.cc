#include "io/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "core/error.h"

namespace adder {
namespace {

[[noreturn]] void fail_errno(const std::string& path, const char* action, int error) {
  fail(ErrorCode::kIo, "{}: cannot {}: {}", path, action, std::generic_category().message(error));
}

// Closes the file on every way out; the mapping stays valid after that.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO that has no writer must return at once, to be refused below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_errno(path, "open", errno);
  const Descriptor file(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno(path, "read its size", errno);
  if (S_ISDIR(info.st_mode)) bad_input("{}: expected a file, got a directory", path);
  if (!S_ISREG(info.st_mode)) {
    bad_input("{}: expected a regular file, got a {}", path,
              S_ISFIFO(info.st_mode) ? "FIFO" : "device or socket");
  }
  if (info.st_size <= 0) bad_input("{}: the file is empty", path);
  if (static_cast<uint64_t>(info.st_size) > SIZE_MAX) bad_input("{}: too large to map", path);
  const auto size = static_cast<size_t>(info.st_size);
  // The kernel's default read-ahead is kept: MADV_SEQUENTIAL would let weights that are used in
  // place at every token be evicted first, MADV_WILLNEED would read 14 GB just to list tensors.
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail_errno(path, "map", errno);
  ::madvise(data, size, MADV_DONTDUMP);  // advice only: a core dump need not hold the weights
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const std::byte*>(data), size));
}

void MappedFile::discard(std::span<const std::byte> part) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (part.data() < data_ || part.data() + part.size() > data_ + size_) return;
  const auto first = static_cast<size_t>(part.data() - data_);  // data_ is at a page
  const size_t begin = (first + page - 1) / page * page;
  const size_t end = (first + part.size()) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(data_), size_);  // munmap takes a plain pointer, writes nothing
}

}  // namespace adder
