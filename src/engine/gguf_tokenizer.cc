#include "engine/gguf_tokenizer.h"

#include "core/error.h"
#include "text/read_file.h"

namespace adder {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";
constexpr std::string_view kUnknown = "tokenizer.ggml.unknown_token_id";
constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
constexpr std::string_view kAddSpace = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kChatTemplate = "tokenizer.chat_template";

std::optional<int32_t> id_of(const GgufMetadata& metadata, std::string_view key) {
  const auto id = metadata.get_int(key);
  // Some writers say "none" with -1 or 2^32 - 1.
  if (!id || *id < 0 || *id > INT32_MAX) return std::nullopt;
  return static_cast<int32_t>(*id);
}

std::vector<std::string> owned(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

}  // namespace

std::optional<GgufVocabulary> read_gguf_vocabulary(const GgufMetadata& metadata) {
  const std::string_view model = metadata.get_string(kModel).value_or("none");
  if (model == "none" || model == "no_vocab") return std::nullopt;
  GgufVocabulary v;
  v.model = model;
  v.pre = metadata.get_string(kPre).value_or("");
  v.tokens = owned(metadata.get_strings(kTokens));
  v.scores = metadata.get_floats(kScores);
  v.types = metadata.get_ints(kTypes);
  v.merges = owned(metadata.get_strings(kMerges));
  v.bos = id_of(metadata, kBos);
  v.eos = id_of(metadata, kEos);
  v.unk = id_of(metadata, kUnknown);
  v.add_bos = metadata.get_bool(kAddBos);
  v.add_space_prefix = metadata.get_bool(kAddSpace);
  return v;
}

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufMetadata& metadata) {
  const auto vocabulary = read_gguf_vocabulary(metadata);
  return vocabulary ? make_gguf_tokenizer(*vocabulary, metadata.file()) : nullptr;
}

std::optional<ChatTemplate> gguf_chat_template(const GgufMetadata& metadata) {
  const auto source = metadata.get_string(kChatTemplate);
  return source ? detect_chat_template(*source) : std::nullopt;
}

void add_gguf_vocabulary(GgufWriter& writer, GgufVocabulary v, int64_t rows,
                         const std::string& name) {
  const int32_t size = gguf_vocabulary_size(v);
  if (size > rows) {
    bad_input(
        "{}: the tokenizer has {} ids, but the embedding has {} rows: they do not belong together",
        name, size, rows);
  }
  const auto padded = static_cast<size_t>(rows);
  if (v.types.empty())
    v.types.assign(v.tokens.size(), static_cast<int32_t>(GgufTokenType::kNormal));
  v.tokens.resize(static_cast<size_t>(size));
  for (size_t id = v.tokens.size(); id < padded; ++id)
    v.tokens.push_back(fmt::format("[PAD{}]", id));
  v.types.resize(static_cast<size_t>(size));
  v.types.resize(padded, static_cast<int32_t>(GgufTokenType::kUnused));
  writer.add_string(kModel, v.model);
  writer.add_string(kPre, v.pre.empty() ? "default" : v.pre);
  writer.add_strings(kTokens, views_of(v.tokens));
  if (!v.scores.empty()) {
    constexpr float kPadScore = -10000.0f;  // what llama.cpp's converter writes
    v.scores.resize(static_cast<size_t>(size));
    v.scores.resize(padded, kPadScore);
    writer.add_floats(kScores, v.scores);
  }
  writer.add_ints(kTypes, v.types);
  if (v.model == "gpt2") writer.add_strings(kMerges, views_of(v.merges));
  const auto add_id = [&](std::string_view key, std::optional<int32_t> id) {
    if (id) writer.add_u32(key, static_cast<uint32_t>(*id));
  };
  add_id(kBos, v.bos);
  add_id(kEos, v.eos);
  add_id(kUnknown, v.unk);
  if (v.add_bos) writer.add_bool(kAddBos, *v.add_bos);
  if (v.add_space_prefix) writer.add_bool(kAddSpace, *v.add_space_prefix);
}

std::optional<GgufVocabulary> gguf_vocabulary_of(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return read_gguf_vocabulary(*checkpoint.gguf());
  if (checkpoint.config().get_string("tokenizer").value_or("") == "bytes") {
    return gguf_byte_vocabulary();
  }
  if (checkpoint.directory().empty()) return std::nullopt;
  const auto file = find_tokenizer_file(checkpoint.directory());
  const auto tokenizer = load_tokenizer(checkpoint.directory());
  if (!file || !tokenizer) return std::nullopt;
  return to_gguf_vocabulary(read_file(*file), *tokenizer, *file);
}

}  // namespace adder
