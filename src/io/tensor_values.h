// The values of stored tensors.
#pragma once

#include <cstdint>
#include <span>

#include "io/tensor_file.h"

namespace adder {

// Elements [begin, begin + out.size()) in row-major order as float32. Block formats: whole blocks.
// Throws Error(kBadInput) naming the tensor for a dtype that no weight has.
void read_values(const StoredTensor& tensor, int64_t begin, std::span<float> out);

}  // namespace adder
