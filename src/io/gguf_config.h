// What makes a GGUF file a checkpoint like the others.
#pragma once

#include <string>

#include "io/gguf.h"

namespace adder {

// The single values of the metadata as a JSON object, under their own keys. Arrays and texts of
// more than 256 bytes (vocabularies, templates, licences) are left out.
std::string gguf_config_json(const GgufMetadata& metadata);

// Gives a tensor the shape it has in the other dialects: ssm_conv1d (C, K) becomes (C, 1, K), and
// Mamba-2's ssm_a and ssm_d (H, 1) and ssm_norm (G, E/G) become flat.
void shape_as_torch(StoredTensor& tensor, bool mamba2);

}  // namespace adder
