#include "engine/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace adder {

AtomicFile::AtomicFile(const std::string& target)
    : target_(target), name_(target + ".XXXXXX"), fd_(-1) {
  // Renaming over a device or a directory would not do what the caller means.
  struct stat info = {};
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    bad_input("{}: cannot write: expected a new or a regular file", target);
  }
  fd_ = ::mkstemp(name_.data());
  if (fd_ < 0) give_up();
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up();
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  // mkstemp makes private files; the result gets the permissions of any other new file.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd_, 0666 & ~mask) != 0 || ::fsync(fd_) != 0) give_up();
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0 || ::rename(name_.c_str(), target_.c_str()) != 0) give_up();
  name_.clear();
}

void AtomicFile::give_up() const {
  fail(ErrorCode::kIo, "{}: cannot write: {}", target_, std::strerror(errno));
}

}  // namespace adder
