// What the fuzz targets of the readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/error.h"
#include "io/tensor_file.h"

namespace adder::fuzzing {

inline std::span<const std::byte> input(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

// Runs a reader on hostile bytes: it may succeed or throw Error. Any other exception, and an error
// that would be a bug of ours, ends the process and is reported.
template <typename Call>
void contained(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) std::abort();
  }
}

// Reads the first and the last element of every tensor, so that the address sanitizer sees a tensor
// that leaves its memory, and checks what the header promises.
inline void touch(const TensorFile& file) {
  [[maybe_unused]] volatile std::byte sink{};
  for (const StoredTensor& tensor : file.tensors) {
    const size_t item = dtype_size(tensor.dtype);
    if (tensor.shape.size() != tensor.stride.size()) std::abort();
    if (tensor.size() == 0) continue;
    if (is_quantized(tensor.dtype)) {
      sink = tensor.data[0];
      sink = tensor.data[row_bytes(tensor.dtype, tensor.size()) - 1];
      continue;
    }
    if (reinterpret_cast<uintptr_t>(tensor.data) % item != 0) std::abort();
    int64_t last = 0;
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      last += (tensor.shape[axis] - 1) * tensor.stride[axis];
    }
    sink = tensor.data[0];
    sink = tensor.data[static_cast<size_t>(last) * item + item - 1];
    if (last + 1 < tensor.size() && tensor.is_contiguous()) std::abort();
  }
}

}  // namespace adder::fuzzing
