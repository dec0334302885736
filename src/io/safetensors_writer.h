// Writes safetensors (io/safetensors.h).
#pragma once

#include <string>

#include "io/tensor_writer.h"

namespace adder {

// No block formats: the container has no name for them. It allows no gaps either, so the caller
// declares wider dtypes first to have mapped data aligned; the header is padded to 8 bytes.
class SafetensorsWriter final : public TensorWriter {
 public:
  explicit SafetensorsWriter(ByteSink sink) : TensorWriter(std::move(sink), 1) {}

 private:
  std::string header() const override;
};

}  // namespace adder
