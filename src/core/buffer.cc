#include "core/buffer.h"

#include <sys/mman.h>

#include "core/error.h"

namespace adder {

Buffer allocate_host(size_t bytes) {
  const size_t length = bytes == 0 ? 64 : bytes;
  void* p = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(ErrorCode::kIo, "out of memory: {} bytes were refused", bytes);
  return Buffer(p, length, [](void* data, size_t n) { ::munmap(data, n); });
}

}  // namespace adder
