// Owned memory of a backend: move-only, freed by whoever allocated it.
#pragma once

#include <cstddef>
#include <memory>

namespace adder {

class Buffer {
 public:
  using Deleter = void (*)(void* data, size_t bytes);

  Buffer() : data_(nullptr, Free{0, nullptr}) {}
  Buffer(void* data, size_t bytes, Deleter deleter) : data_(data, Free{bytes, deleter}) {}

  void* data() const { return data_.get(); }
  size_t size() const { return data_ ? data_.get_deleter().bytes : 0; }

 private:
  struct Free {
    size_t bytes;
    Deleter deleter;
    void operator()(void* p) const { deleter(p, bytes); }
  };
  std::unique_ptr<void, Free> data_;
};

// Zero-filled host memory aligned to 64 bytes. Large blocks come straight from the kernel, so pages
// that are never touched cost nothing. Throws Error(kIo) when the system has no memory left.
Buffer allocate_host(size_t bytes);

// The same for blocks that are written once and streamed often: from 4 MB on aligned to 2 MB, with
// huge pages asked for where they are filled to the end.
Buffer allocate_large(size_t bytes);

}  // namespace adder
