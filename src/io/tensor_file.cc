#include "io/tensor_file.h"

#include <cstring>

#include "core/buffer.h"

namespace adder {

int64_t StoredTensor::size() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

bool StoredTensor::is_contiguous() const {
  if (size() == 0) return true;
  // The stride of an axis of length 1 is never used.
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && stride[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    stride[axis] = step;
    step *= shape[axis];
  }
  return stride;
}

bool layout_fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
                 int64_t offset, int64_t storage_size) {
  if (shape.size() != stride.size() || offset < 0 || offset > storage_size) return false;
  // Largest index = offset + sum over axes of (shape - 1) * stride. Empty axes are left out, so
  // that partial products of the shape cannot overflow later either.
  int64_t last = offset, count = 1;
  bool empty = false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t dim = shape[axis];
    if (dim < 0 || stride[axis] < 0) return false;
    empty = empty || dim == 0;
    int64_t step = 0;
    if (dim != 0 && (__builtin_mul_overflow(count, dim, &count) ||
                     __builtin_mul_overflow(dim - 1, stride[axis], &step) ||
                     __builtin_add_overflow(last, step, &last))) {
      return false;
    }
  }
  return empty || (count <= storage_size && last < storage_size);
}

const std::byte* aligned_data(std::span<const std::byte> bytes, size_t alignment,
                              std::vector<std::shared_ptr<const void>>& owners) {
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0;
  if (aligned || bytes.empty()) return bytes.data();
  // As large as the tensor, which lies in the file: never more memory than the file is long.
  auto copy = std::make_shared<Buffer>(allocate_host(bytes.size()));
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  const auto* data = static_cast<const std::byte*>(copy->data());
  owners.push_back(std::move(copy));
  return data;
}

}  // namespace adder
