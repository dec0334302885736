// The metadata of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/gguf_writer.h"
#include "model/config.h"

namespace adder {

// The keys of a model, tokenizer included: those of the source if it is GGUF, else made from its
// config as llama.cpp's converter makes them. What GGUF has no key for is under "adder.". type: of
// most weights. Returns what llama.cpp would do differently, or what is lost, one line each.
std::vector<std::string> add_gguf_metadata(GgufWriter& writer, const Checkpoint& source,
                                           const ModelConfig& config, DType type);

}  // namespace adder
