// The safetensors container: u64 little-endian header length, a JSON header
// {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {..}},
// then the data, without gap or overlap.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/tensor_file.h"

namespace adder {

// Lists the tensors of an image that outlives the result; `name` is the file name in messages.
// Throws Error(kBadInput) on any violation of the format, Error(kUnsupported) for a dtype that
// core/dtype.h lacks (F8, complex).
TensorFile read_safetensors(std::span<const std::byte> image, const std::string& name);

// The same from a file, which is mapped and owned by the result.
TensorFile open_safetensors(const std::string& path);

}  // namespace adder
