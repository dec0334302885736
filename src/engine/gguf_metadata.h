// The metadata of a GGUF file.
#pragma once

#include "io/checkpoint.h"
#include "io/gguf_writer.h"
#include "model/config.h"

namespace adder {

// The keys of a model: those of the source if it is GGUF, else made from its config.
void add_gguf_metadata(GgufWriter& writer, const Checkpoint& source, const ModelConfig& config,
                       DType type);

}  // namespace adder
