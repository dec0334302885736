#include "text/gguf_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/gguf_pretokenizer.h"
#include "text/normalizer.h"
#include "text/sentencepiece.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace adder {
namespace {

using Json = nlohmann::json;

GgufTokenType type_of(const GgufVocabulary& v, int32_t id) {
  if (v.types.empty()) return GgufTokenType::kNormal;
  return static_cast<GgufTokenType>(v.types[static_cast<size_t>(id)]);
}

void check(const GgufVocabulary& v, const std::string& name) {
  if (v.model != "gpt2" && v.model != "llama") {
    fail(ErrorCode::kUnsupported,
         "{}: key 'tokenizer.ggml.model': expected gpt2 or llama, got '{}'", name, v.model);
  }
  const auto check_size = [&](std::string_view key, size_t size) {
    ADDER_CHECK(size == 0 || size == v.tokens.size(),
                "{}: key 'tokenizer.ggml.{}': expected {} elements, one per token, got {}", name,
                key, v.tokens.size(), size);
  };
  ADDER_CHECK(!v.tokens.empty(), "{}: key 'tokenizer.ggml.tokens': expected tokens, got none",
              name);
  check_size("scores", v.scores.size());
  check_size("token_type", v.types.size());
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    ADDER_CHECK(is_valid_utf8(v.tokens[i]),
                "{}: key 'tokenizer.ggml.tokens': element {}: expected UTF-8", name, i);
  }
  for (size_t i = 0; i < v.types.size(); ++i) {
    ADDER_CHECK(v.types[i] >= 1 && v.types[i] <= 6,
                "{}: key 'tokenizer.ggml.token_type': element {}: expected 1 to 6, got {}", name, i,
                v.types[i]);
  }
  for (size_t i = 0; i < v.merges.size(); ++i) {
    ADDER_CHECK(is_valid_utf8(v.merges[i]),
                "{}: key 'tokenizer.ggml.merges': element {}: expected UTF-8", name, i);
  }
}

std::string default_pre(const GgufVocabulary& v) {
  const bool neox =
      v.tokens.size() > 1 && v.tokens[0] == "<|endoftext|>" && v.tokens[1] == "<|padding|>";
  return neox ? "olmo" : "gpt-2";
}

GgufPretokenizer pretokenizer_of(const GgufVocabulary& v, const std::string& name) {
  const std::string pre = v.pre.empty() || v.pre == "default" ? default_pre(v) : v.pre;
  const auto found = find_gguf_pretokenizer(pre);
  if (!found) {
    fail(ErrorCode::kUnsupported, "{}: key 'tokenizer.ggml.pre': expected one of {}, got '{}'",
         name, gguf_pretokenizer_names(), pre);
  }
  return *found;
}

std::string tokenizer_json(const GgufVocabulary& v, const std::string& name) {
  const GgufPretokenizer words = pretokenizer_of(v, name);
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = Json::array();
  json["normalizer"] = Json::parse(words.normalizer);
  json["pre_tokenizer"] = Json::parse(words.pre_tokenizer);
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  Json& model = json["model"];
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = nullptr;
  model["ignore_merges"] = words.ignore_merges;
  Json& vocab = model["vocab"] = Json::object();
  const int32_t size = gguf_vocabulary_size(v);
  for (int32_t id = 0; id < size; ++id) {
    const std::string& token = v.tokens[static_cast<size_t>(id)];
    const GgufTokenType type = type_of(v, id);
    if (type == GgufTokenType::kUnused) continue;
    if (type == GgufTokenType::kNormal || type == GgufTokenType::kByte) {
      ADDER_CHECK(vocab.emplace(token, id).second,
                  "{}: key 'tokenizer.ggml.tokens': element {}: '{}' occurs twice", name, id,
                  token);
      continue;
    }
    const bool special = type != GgufTokenType::kUserDefined;
    json["added_tokens"].push_back({{"id", id},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", !special},
                                    {"special", special}});
  }
  model["merges"] = v.merges;
  return json.dump();
}

std::string sentencepiece_model(const GgufVocabulary& v, const std::string& name) {
  ADDER_CHECK(!v.scores.empty(), "{}: key 'tokenizer.ggml.scores': expected scores, got none",
              name);
  const int32_t size = gguf_vocabulary_size(v);
  SentencePieceModel model;
  std::vector<std::string> texts(static_cast<size_t>(size));
  bool bytes = false;
  for (int32_t id = 0; id < size; ++id) {
    const auto i = static_cast<size_t>(id);
    const GgufTokenType type = type_of(v, id);
    // llama.cpp's converter spells blanks in these tokens as blanks.
    texts[i] =
        type == GgufTokenType::kUserDefined ? replace_all(v.tokens[i], " ", kBlank) : v.tokens[i];
    model.pieces.push_back({texts[i], v.scores[i], static_cast<PieceType>(type)});
    bytes = bytes || type == GgufTokenType::kByte;
  }
  const auto piece_of = [&](std::optional<int32_t> id, std::string_view fallback) {
    return id && *id >= 0 && *id < size ? std::string_view(texts[static_cast<size_t>(*id)])
                                        : fallback;
  };
  model.is_bpe = true;
  model.byte_fallback = bytes;
  model.remove_extra_whitespaces = false;
  model.add_dummy_prefix = v.add_space_prefix.value_or(true);
  model.bos_piece = piece_of(v.bos, model.bos_piece);
  model.eos_piece = piece_of(v.eos, model.eos_piece);
  model.unk_piece = piece_of(v.unk, model.unk_piece);
  return write_sentencepiece_model(model, model.add_dummy_prefix);
}

// Ids of a file's vocabulary by position, with "[PAD<id>]" where it has none.
void place(GgufVocabulary& v, int64_t id, std::string token, GgufTokenType type) {
  const auto at = static_cast<size_t>(id);
  while (v.tokens.size() <= at) {
    v.tokens.push_back(fmt::format("[PAD{}]", v.tokens.size()));
    v.types.push_back(static_cast<int32_t>(GgufTokenType::kUnused));
  }
  v.tokens[at] = std::move(token);
  v.types[at] = static_cast<int32_t>(type);
}

// `text` has been read by parse_tokenizer_json: ids and types are right.
GgufVocabulary from_tokenizer_json(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text);
  const Json& model = json.at("model");
  GgufPretokenizer words;
  words.normalizer = json.value("normalizer", Json()).dump();
  words.pre_tokenizer = json.value("pre_tokenizer", Json()).dump();
  words.ignore_merges = model.value("ignore_merges", false);
  const auto pre = name_gguf_pretokenizer(words);
  if (!pre) {
    fail(ErrorCode::kUnsupported,
         "{}: pre_tokenizer: expected one that GGUF has a name for ({}), got another", name,
         gguf_pretokenizer_names());
  }
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = *pre;
  for (const auto& [token, id] : model.at("vocab").items()) {
    place(v, id.get<int64_t>(), token, GgufTokenType::kNormal);
  }
  if (const auto added = json.find("added_tokens"); added != json.end() && added->is_array()) {
    for (const Json& token : *added) {
      place(v, token.at("id").get<int64_t>(), token.at("content").get<std::string>(),
            token.value("special", false) ? GgufTokenType::kControl : GgufTokenType::kUserDefined);
    }
  }
  for (const Json& merge : model.at("merges")) {
    v.merges.push_back(merge.is_array()
                           ? merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()
                           : merge.get<std::string>());
  }
  return v;
}

GgufVocabulary from_sentencepiece(std::string_view bytes, const std::string& name) {
  const SentencePieceModel model = read_sentencepiece_model(bytes, name);
  if (!model.is_bpe || !model.charsmap.empty() || model.treat_whitespace_as_suffix ||
      !model.escape_whitespaces) {
    fail(ErrorCode::kUnsupported,
         "{}: expected a SentencePiece model of type BPE without normalisation, got another", name);
  }
  GgufVocabulary v;
  v.model = "llama";
  v.pre = "default";
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    v.tokens.push_back(piece.type == PieceType::kUserDefined ? replace_all(piece.text, kBlank, " ")
                                                             : std::string(piece.text));
    v.scores.push_back(piece.score);
    v.types.push_back(static_cast<int32_t>(piece.type));
    if (piece.type == PieceType::kUnknown) v.unk = static_cast<int32_t>(i);
  }
  v.add_space_prefix = model.add_dummy_prefix;
  return v;
}

bool is_json(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes[first] == '{';
}

}  // namespace

int32_t gguf_vocabulary_size(const GgufVocabulary& v) {
  auto size = static_cast<int32_t>(v.tokens.size());
  while (size > 0) {
    const bool unused = type_of(v, size - 1) == GgufTokenType::kUnused;
    // Older converters called padding a normal or a user-defined token.
    const auto i = static_cast<size_t>(size - 1);
    if (!unused && v.tokens[i] != fmt::format("[PAD{}]", i)) break;
    --size;
  }
  return size;
}

std::string gguf_tokenizer_file(const GgufVocabulary& v, const std::string& name) {
  check(v, name);
  return v.model == "gpt2" ? tokenizer_json(v, name) : sentencepiece_model(v, name);
}

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufVocabulary& v, const std::string& name) {
  const std::string file = gguf_tokenizer_file(v, name);
  const bool gpt2 = v.model == "gpt2";
  auto tokenizer = gpt2 ? parse_tokenizer_json(file, name) : parse_sentencepiece(file, name);
  const auto known = [&](std::optional<int32_t> id) {
    return id && *id >= 0 && *id < tokenizer->size() ? id : std::nullopt;
  };
  if (v.bos) tokenizer->set_bos(known(v.bos));
  if (v.eos) tokenizer->set_eos(known(v.eos));
  tokenizer->set_wants_bos(v.add_bos.value_or(!gpt2 || pretokenizer_of(v, name).add_bos));
  return tokenizer;
}

GgufVocabulary to_gguf_vocabulary(std::string_view file_bytes, const Tokenizer& tokenizer,
                                  const std::string& name) {
  GgufVocabulary v = is_json(file_bytes) ? from_tokenizer_json(file_bytes, name)
                                         : from_sentencepiece(file_bytes, name);
  v.bos = tokenizer.bos_id();
  v.eos = tokenizer.eos_id();
  v.add_bos = tokenizer.wants_bos();
  return v;
}

GgufVocabulary gguf_byte_vocabulary() {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(token, byte_to_character(static_cast<uint8_t>(byte)));
    v.tokens.push_back(std::move(token));
    v.types.push_back(static_cast<int32_t>(GgufTokenType::kNormal));
  }
  v.eos = 0;
  v.add_bos = false;
  return v;
}

}  // namespace adder
