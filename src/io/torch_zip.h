// The zip container of torch.save: <root>/data.pkl describes the tensors, <root>/data/<key> holds
// their storages.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/tensor_file.h"

namespace adder {

// Lists the tensors of an image that outlives the result; `name` is the file name in messages. The
// state dict may lie one level down, under "state_dict", "model_state_dict" or "model". Entries
// that are no tensors are left out. Tied tensors share their data. Strides are as stored.
// Throws Error(kBadInput) for malformed files and for pickles that ask for more than data,
// Error(kUnsupported) for files of before PyTorch 1.6, which are no zip.
TensorFile read_torch_zip(std::span<const std::byte> image, const std::string& name);

// The same from a file, which is mapped and owned by the result.
TensorFile open_torch_zip(const std::string& path);

}  // namespace adder
