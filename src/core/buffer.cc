#include "core/buffer.h"

#include <sys/mman.h>

#include <cstdint>

#include "core/error.h"

namespace adder {

Buffer allocate_host(size_t bytes) {
  const size_t length = bytes == 0 ? 64 : bytes;
  void* p = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(ErrorCode::kIo, "out of memory: {} bytes were refused", bytes);
  return Buffer(p, length, [](void* data, size_t n) { ::munmap(data, n); });
}

Buffer allocate_large(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes < 2 * kHugePage) return allocate_host(bytes);
  // mmap aligns to 4 KB: ask for a page more and give back what lies outside.
  const size_t length = (bytes + 4095) / 4096 * 4096;
  void* p = ::mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
  if (p == MAP_FAILED) fail(ErrorCode::kIo, "out of memory: {} bytes were refused", bytes);
  auto* begin = static_cast<std::byte*>(p);
  const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage) % kHugePage;
  if (skip > 0) ::munmap(begin, skip);
  ::munmap(begin + skip + length, kHugePage - skip);
  ::madvise(begin + skip, length / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: may fail
  return Buffer(begin + skip, length, [](void* data, size_t n) { ::munmap(data, n); });
}

}  // namespace adder
