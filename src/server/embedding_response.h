// The answer of /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

// {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"};
// base64: each embedding as the base64 of its little-endian float32 values, as OpenAI's own clients
// ask for it.
std::string embeddings_body(std::string_view model, std::span<const std::vector<float>> embeddings,
                            int64_t tokens, bool base64);

std::string base64_of(std::span<const float> values);

}  // namespace adder
