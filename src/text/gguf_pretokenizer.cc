#include "text/gguf_pretokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace adder {
namespace {

using Json = nlohmann::json;

enum class Words : uint8_t { kGpt2, kNeoX, kFalcon, kLlama3, kCl100k, kQwen2, kStarcoder };

struct Row {
  std::string_view pre;
  Words words;
};
// The first name of a kind is the one that is written. llama.cpp knows more names than these; they
// belong to families that have no Mamba model.
constexpr Row kRows[] = {
    {"gpt-2", Words::kGpt2},       {"olmo", Words::kNeoX},           {"mpt", Words::kNeoX},
    {"gpt-neox", Words::kNeoX},    {"falcon", Words::kFalcon},       {"llama-bpe", Words::kLlama3},
    {"llama3", Words::kLlama3},    {"llama-v3", Words::kLlama3},     {"falcon3", Words::kLlama3},
    {"falcon-h1", Words::kLlama3}, {"dbrx", Words::kCl100k},         {"smaug-bpe", Words::kCl100k},
    {"qwen2", Words::kQwen2},      {"starcoder", Words::kStarcoder}, {"refact", Words::kStarcoder},
};

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}

Json split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json sequence(Json steps) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

GgufPretokenizer text(const Json& normalizer, const Json& pre_tokenizer, bool ignore_merges = false,
                      bool add_bos = false) {
  return {normalizer.dump(), pre_tokenizer.dump(), ignore_merges, add_bos};
}

GgufPretokenizer describe(Words words) {
  switch (words) {
    case Words::kGpt2:
      return text(nullptr, byte_level(true));
    case Words::kNeoX:
      return text({{"type", "NFC"}}, byte_level(true));
    case Words::kFalcon:
      return text(nullptr,
                  sequence(Json::array({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                                        byte_level(true),
                                        {{"type", "Digits"}, {"individual_digits", false}},
                                        split("[0-9][0-9][0-9]")})));
    case Words::kLlama3:
      return text(nullptr, sequence(Json::array({split(kLlama3Pattern), byte_level(false)})), true,
                  true);
    case Words::kCl100k:
      return text(nullptr, sequence(Json::array({split(kLlama3Pattern), byte_level(false)})));
    case Words::kQwen2:
      return text({{"type", "NFC"}},
                  sequence(Json::array({split(kQwen2Pattern), byte_level(false)})));
    case Words::kStarcoder:
      break;
  }
  return text(
      nullptr,
      sequence(Json::array({{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)})));
}

// The same meaning, spelled in one way.
Json canonical(Json node) {
  if (!node.is_object()) return node;
  node.erase("trim_offsets");
  const std::string type = node.value("type", "");
  if (type == "ByteLevel") {
    if (!node.contains("use_regex")) node["use_regex"] = true;
    if (!node.contains("add_prefix_space")) node["add_prefix_space"] = true;
  }
  if (type == "Split" && node.value("behavior", "") == "Removed" && node.value("invert", false)) {
    node["behavior"] = "Isolated";  // these patterns match every character
    node["invert"] = false;
  }
  for (const char* key : {"pretokenizers", "normalizers"}) {
    const auto steps = node.find(key);
    if (steps == node.end() || !steps->is_array()) continue;
    for (Json& step : *steps) step = canonical(std::move(step));
    if (steps->size() == 1) return Json((*steps)[0]);
  }
  return node;
}

}  // namespace

std::optional<GgufPretokenizer> find_gguf_pretokenizer(std::string_view pre) {
  for (const Row& row : kRows) {
    if (row.pre == pre) return describe(row.words);
  }
  return std::nullopt;
}

std::string gguf_pretokenizer_names() {
  std::string names;
  for (const Row& row : kRows) {
    if (!names.empty()) names += ", ";
    names += row.pre;
  }
  return names;
}

std::optional<std::string> name_gguf_pretokenizer(const GgufPretokenizer& description) {
  const Json normalizer = canonical(Json::parse(description.normalizer));
  const Json pre_tokenizer = canonical(Json::parse(description.pre_tokenizer));
  for (const Row& row : kRows) {
    const GgufPretokenizer known = describe(row.words);
    if (Json::parse(known.normalizer) == normalizer &&
        Json::parse(known.pre_tokenizer) == pre_tokenizer &&
        known.ignore_merges == description.ignore_merges) {
      return std::string(row.pre);
    }
  }
  return std::nullopt;
}

}  // namespace adder
