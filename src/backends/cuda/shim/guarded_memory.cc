#include "backends/cuda/shim/guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/error.h"

namespace adder::emulator {
namespace {

struct Guarded {
  std::mutex mutex;
  std::map<void*, size_t> regions;
  int open = 0;  // how many want access
};

// Never destroyed: an interpreter frees arrays late.
Guarded& guarded() {
  static auto* all = new Guarded;
  return *all;
}

void protect(const Guarded& all, int access) {
  for (const auto& [data, bytes] : all.regions) {
    if (mprotect(data, bytes, access) != 0) fail(ErrorCode::kInternal, "emulator: mprotect failed");
  }
}

void free_guarded(void* data, size_t bytes) {
  Guarded& all = guarded();
  const std::scoped_lock lock(all.mutex);
  all.regions.erase(data);
  munmap(data, std::max<size_t>(bytes, 1));
}

}  // namespace

Buffer allocate_guarded(size_t bytes) {
  const size_t length = std::max<size_t>(bytes, 1);
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail(ErrorCode::kIo, "emulator: no memory for {} bytes", bytes);
  std::memset(data, 0xff, length);
  Buffer buffer(data, bytes, free_guarded);
  Guarded& all = guarded();
  const std::scoped_lock lock(all.mutex);
  all.regions.emplace(data, length);
  if (all.open == 0 && mprotect(data, length, PROT_NONE) != 0)
    fail(ErrorCode::kInternal, "emulator: mprotect failed");
  return buffer;
}

DeviceAccess::DeviceAccess() {
  Guarded& all = guarded();
  const std::scoped_lock lock(all.mutex);
  if (all.open++ == 0) protect(all, PROT_READ | PROT_WRITE);
}

DeviceAccess::~DeviceAccess() {
  Guarded& all = guarded();
  const std::scoped_lock lock(all.mutex);
  if (--all.open == 0) protect(all, PROT_NONE);
}

}  // namespace adder::emulator
