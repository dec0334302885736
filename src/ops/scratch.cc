#include "ops/scratch.h"

#include "core/buffer.h"
#include "core/error.h"

namespace adder::ops {

Scratch::Scratch(size_t floats) : left_(floats) {
  thread_local Buffer buffer;
  if (buffer.size() < floats * sizeof(float)) {
    buffer = Buffer();  // first, so that both are never held at once
    buffer = allocate_host(floats * sizeof(float));
  }
  next_ = static_cast<float*>(buffer.data());
}

float* Scratch::take(int64_t floats) {
  const size_t padded_floats = padded(floats);
  ADDER_CHECK(padded_floats <= left_, "scratch: expected at most {} floats, got {}", left_,
              padded_floats);
  float* taken = next_;
  next_ += padded_floats;
  left_ -= padded_floats;
  return taken;
}

}  // namespace adder::ops
