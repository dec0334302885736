#include "text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "text/read_file.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_json.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

// A SentencePiece model begins with the key of its first piece, a line feed.
bool is_json(std::string_view bytes, const fs::path& path) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return path.extension() == ".json" || (first != std::string_view::npos && bytes[first] == '{');
}

// Tokens that end a text, most telling first, for tokenizers whose files do not name one.
constexpr std::string_view kEndOfText[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                           "<|im_end|>"};

void guess_eos(Tokenizer& tokenizer) {
  for (const std::string_view token : kEndOfText) {
    const auto id = tokenizer.token_to_id(token);
    if (id && tokenizer.is_special(*id)) return tokenizer.set_eos(id);
  }
}

// "bos_token": "<s>" or {"content": "<s>", ...}
std::optional<std::string> token_field(const nlohmann::json& config, const char* key,
                                       const std::string& name) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object()) {
    const auto content = found->find("content");
    if (content != found->end() && content->is_string()) return content->get<std::string>();
  }
  bad_input("{}: {}: expected a token or an object with its content, got {}", name, key,
            found->type_name());
}

// Takes bos, eos and add_bos_token from tokenizer_config.json or special_tokens_map.json.
void apply_config(Tokenizer& tokenizer, const fs::path& path) {
  const std::string name = path.string();
  const auto config = nlohmann::json::parse(read_json_config(path), nullptr, false);
  ADDER_CHECK(config.is_object(), "{}: expected a JSON object, got {}", name,
              config.is_discarded() ? "malformed text" : config.type_name());
  if (const auto token = token_field(config, "bos_token", name)) {
    if (const auto id = tokenizer.token_to_id(*token)) tokenizer.set_bos(id);
  }
  if (const auto token = token_field(config, "eos_token", name)) {
    if (const auto id = tokenizer.token_to_id(*token)) tokenizer.set_eos(id);
  }
  const auto add_bos = config.find("add_bos_token");
  if (add_bos != config.end() && add_bos->is_boolean()) {
    tokenizer.set_wants_bos(add_bos->get<bool>());
  }
}

// tokenizer.model first, then tokenizer.model.v3, foo.model.v3 and the like, by name.
std::optional<fs::path> find_sentencepiece(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".model") || name.find(".model.v") != std::string::npos) {
      found.push_back(it->path());
    }
  }
  if (found.empty()) return std::nullopt;
  const auto rank = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return std::pair(name == "tokenizer.model"             ? 0
                     : name.starts_with("tokenizer.model") ? 1
                                                           : 2,
                     name);
  };
  return *std::min_element(found.begin(), found.end(),
                           [&](const fs::path& a, const fs::path& b) { return rank(a) < rank(b); });
}

}  // namespace

std::vector<int32_t> Tokenizer::encode_parts(std::span<const TextPart> parts, bool add_bos) const {
  std::vector<int32_t> ids;
  for (const TextPart& part : parts) {
    const auto more =
        encode(part.text, {.parse_special = part.parse_special, .add_bos = add_bos && ids.empty()});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::unique_ptr<Tokenizer> load_tokenizer_file(const std::string& file) {
  const std::string bytes = read_file(file);
  auto tokenizer =
      is_json(bytes, file) ? parse_tokenizer_json(bytes, file) : parse_sentencepiece(bytes, file);
  if (!tokenizer->eos_id()) guess_eos(*tokenizer);
  return tokenizer;
}

std::optional<std::string> find_tokenizer_file(const std::string& directory) {
  const fs::path folder(directory);
  if (fs::exists(folder / "tokenizer.json")) return (folder / "tokenizer.json").string();
  if (const auto model = find_sentencepiece(folder)) return model->string();
  return std::nullopt;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& directory) {
  const fs::path folder(directory);
  const auto file = find_tokenizer_file(directory);
  if (!file) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer_file(*file);
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (fs::exists(folder / name)) apply_config(*tokenizer, folder / name);
  }
  return tokenizer;
}

}  // namespace adder
