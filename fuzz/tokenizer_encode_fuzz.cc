// Any bytes through byte-level tokenizers: decoding gives them back, no control token comes out of
// plain text, and streaming equals decoding at once. The first byte picks the pre-tokenizer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace {

using Json = nlohmann::json;

constexpr const char* kPretokenizers[] = {
    R"({"type": "ByteLevel", "add_prefix_space": false})",
    R"({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
         "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})",
    R"({"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "ByteLevel", "add_prefix_space": false},
        {"type": "Digits", "individual_digits": false},
        {"type": "Split", "behavior": "Isolated", "invert": false,
         "pattern": {"Regex": "[0-9][0-9][0-9]"}}]})",
};

std::unique_ptr<adder::Tokenizer> make_tokenizer(const char* pretokenizer) {
  Json json = {{"model", {{"type", "BPE"}}}, {"pre_tokenizer", Json::parse(pretokenizer)}};
  Json& vocab = json["model"]["vocab"];
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back();
    adder::append_utf8(tokens.back(), adder::byte_to_character(static_cast<uint8_t>(byte)));
  }
  const std::string blank = tokens[' '];
  for (const auto& [left, right] :
       std::vector<std::pair<std::string, std::string>>{{"a", "a"},
                                                        {"aa", "aa"},
                                                        {"t", "h"},
                                                        {"th", "e"},
                                                        {blank, "the"},
                                                        {"1", "2"},
                                                        {tokens[0xc3], tokens[0xa9]},
                                                        {blank, blank},
                                                        {"<", "s"},
                                                        {"<s", ">"}}) {
    json["model"]["merges"].push_back({left, right});
    tokens.push_back(left + right);
  }
  for (size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  json["added_tokens"] = {{{"id", tokens.size()}, {"content", "<e>"}, {"special", true}},
                          {{"id", tokens.size() + 1}, {"content", "  aa"}, {"special", false}}};
  return adder::parse_tokenizer_json(json.dump(), "fuzz");
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<adder::Tokenizer> tokenizers[] = {make_tokenizer(kPretokenizers[0]),
                                                                 make_tokenizer(kPretokenizers[1]),
                                                                 make_tokenizer(kPretokenizers[2])};
  if (size == 0) return 0;
  const adder::Tokenizer& tokenizer = *tokenizers[data[0] % 3];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const auto ids = tokenizer.encode(text);
  require(tokenizer.decode(ids) == text);
  for (const int32_t id : ids) require(!tokenizer.is_special(id));

  const auto special = tokenizer.encode(text, {.parse_special = true});
  require(tokenizer.decode(special) == text);
  adder::StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const int32_t id : special) {
    const std::string_view piece = decoder.push(id);
    require(adder::is_valid_utf8(piece));
    streamed.append(piece);
  }
  streamed.append(decoder.finish());
  require(streamed == adder::replace_invalid_utf8(tokenizer.decode(special, true)));
  return 0;
}
