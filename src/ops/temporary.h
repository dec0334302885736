// An array of the library's own, for what an operation hands to the next.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "core/buffer.h"
#include "ops/array_view.h"

namespace adder::ops {

// float32, contiguous, zero.
class Temporary {
 public:
  Temporary(std::initializer_list<int64_t> shape)
      : buffer_(allocate_host(bytes(shape))), view_(buffer_.data(), DType::kF32, shape) {}

  const ArrayView& view() const { return view_; }
  float* data() const { return static_cast<float*>(buffer_.data()); }

 private:
  static size_t bytes(std::initializer_list<int64_t> shape) {
    size_t count = sizeof(float);
    for (int64_t d : shape) count *= static_cast<size_t>(d);
    return std::max<size_t>(count, 1);
  }

  Buffer buffer_;
  ArrayView view_;
};

}  // namespace adder::ops
