// Memory for the tiles of a task.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adder::ops {

// Scratch of the calling thread: grows to the largest request and stays; contents are undefined,
// and a request invalidates earlier ones.
class Scratch {
 public:
  explicit Scratch(size_t floats);
  // The next `floats`, aligned to 64 bytes.
  float* take(int64_t floats);
  // What take() needs for so many.
  static size_t padded(int64_t floats) { return (static_cast<size_t>(floats) + 15) / 16 * 16; }

 private:
  float* next_;
  size_t left_;
};

}  // namespace adder::ops
