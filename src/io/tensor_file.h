// What every reader of a tensor container hands back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/mmap_file.h"

namespace adder {

// One tensor as stored. `data` is aligned for its dtype and points into a mapped file, a given
// image or a copy, which the TensorFile or the Checkpoint keeps alive. Element (i, j, ...) lies at
// i * stride[0] + j * stride[1] + ...; readers have checked that every element is inside.
struct StoredTensor {
  std::string name;
  std::string file;  // file name it came from, for messages
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;  // in elements; contiguous row-major for safetensors
  const std::byte* data = nullptr;

  int64_t size() const;  // elements; 1 for a scalar
  bool is_contiguous() const;
};

struct TensorFile {
  std::vector<StoredTensor> tensors;
  std::shared_ptr<const MappedFile> mapping;        // null for an image that was given
  std::vector<std::shared_ptr<const void>> owners;  // copies that keep data alive
};

// Row-major strides of a shape.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

// Whether all elements of a strided tensor lie in a storage of `storage_size` elements, and are not
// more than it has. Expanded tensors (stride 0) would be more; no checkpoint needs them, and a
// hostile one could ask for 2^60 elements in 4 bytes. Any values are safe to pass.
bool layout_fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride,
                 int64_t offset, int64_t storage_size);

// `bytes` itself when it is aligned to `alignment`, else an aligned copy that is added to `owners`.
// No container guarantees alignment, and reading a float through an odd pointer is undefined.
const std::byte* aligned_data(std::span<const std::byte> bytes, size_t alignment,
                              std::vector<std::shared_ptr<const void>>& owners);

}  // namespace adder
