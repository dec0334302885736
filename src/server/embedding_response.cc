#include "server/embedding_response.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <bit>
#include <cstring>

#include "core/error.h"
#include "server/json.h"

namespace adder {

std::string base64_of(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(values);
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL ends it with a zero
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

std::string embeddings_body(std::string_view model, std::span<const std::vector<float>> embeddings,
                            int64_t tokens, bool base64) {
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.size(); ++i) {
    body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    body += base64 ? fmt::format("\"{}\"", base64_of(embeddings[i]))
                   : fmt::format("[{}]", fmt::join(embeddings[i], ","));
    body += '}';
  }
  body += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                      dump(std::string(model)), tokens, tokens);
  return body;
}

}  // namespace adder
