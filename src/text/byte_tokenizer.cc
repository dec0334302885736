#include <array>

#include "core/error.h"
#include "text/tokenizer.h"

namespace adder {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
    eos_id_ = 0;
  }

  using Tokenizer::encode;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      const std::string_view byte = token_bytes(id);
      if (!(skip_special && is_special(id))) text.append(byte);
    }
    return text;
  }

  std::string_view token_bytes(int32_t id) const override {
    ADDER_CHECK(id >= 0 && id < 256, "token id: expected 0 .. 255, got {}", id);
    return {&bytes_[static_cast<size_t>(id)], 1};
  }
  bool is_special(int32_t id) const override { return id == 0; }
  int32_t size() const override { return 256; }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(token[0]);
  }
  std::string_view kind() const override { return "bytes"; }

 private:
  std::array<char, 256> bytes_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace adder
