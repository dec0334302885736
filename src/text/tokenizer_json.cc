#include "text/tokenizer_json.h"

#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_json_sax.h"

namespace adder {
namespace {

using Json = nlohmann::json;

// One object of the file with its place, for messages. Absent and null are the same.
class Node {
 public:
  Node(const Json* json, std::string where) : json_(json), where_(std::move(where)) {
    if (json_ != nullptr && json_->is_null()) json_ = nullptr;
    ADDER_CHECK(json_ == nullptr || json_->is_object(), "{}: expected an object, got {}", where_,
                json_->type_name());
  }

  explicit operator bool() const { return json_ != nullptr; }
  const std::string& where() const { return where_; }
  std::string field(std::string_view key) const { return fmt::format("{}.{}", where_, key); }

  const Json* find(std::string_view key) const {
    if (json_ == nullptr) return nullptr;
    const auto found = json_->find(key);
    return found == json_->end() || found->is_null() ? nullptr : &*found;
  }
  Node object(std::string_view key) const { return {find(key), field(key)}; }

  std::optional<std::string> optional_string(std::string_view key) const {
    const Json* json = find(key);
    if (json == nullptr) return std::nullopt;
    ADDER_CHECK(json->is_string(), "{}: expected a string, got {}", field(key), json->type_name());
    return json->get<std::string>();
  }
  std::string string(std::string_view key) const {
    auto text = optional_string(key);
    ADDER_CHECK(text.has_value(), "{}: expected a string, got nothing", field(key));
    return *std::move(text);
  }
  bool boolean(std::string_view key, bool fallback) const {
    const Json* json = find(key);
    if (json == nullptr) return fallback;
    ADDER_CHECK(json->is_boolean(), "{}: expected true or false, got {}", field(key),
                json->type_name());
    return json->get<bool>();
  }
  int64_t integer(std::string_view key) const {
    const Json* json = find(key);
    ADDER_CHECK(json != nullptr && json->is_number_integer(), "{}: expected a whole number, got {}",
                field(key), json == nullptr ? "nothing" : json->type_name());
    return json->get<int64_t>();
  }
  // The objects of an array; none when it is absent.
  std::vector<Node> objects(std::string_view key) const {
    std::vector<Node> nodes;
    const Json* json = find(key);
    if (json == nullptr) return nodes;
    ADDER_CHECK(json->is_array(), "{}: expected an array, got {}", field(key), json->type_name());
    for (size_t i = 0; i < json->size(); ++i) {
      nodes.emplace_back(&(*json)[i], fmt::format("{}[{}]", field(key), i));
      ADDER_CHECK(static_cast<bool>(nodes.back()), "{}: expected an object, got null",
                  nodes.back().where());
    }
    return nodes;
  }

  [[noreturn]] void unsupported(std::string_view key, std::string_view found,
                                std::string_view supported) const {
    fail(ErrorCode::kUnsupported, "{}: expected {}, got '{}'", field(key), supported, found);
  }

 private:
  const Json* json_;
  std::string where_;
};

// {"String": "x"} or {"Regex": "x"}
struct Pattern {
  std::string text;
  bool regex;
};

Pattern read_pattern(const Node& node) {
  const Node pattern = node.object("pattern");
  if (auto literal = pattern.optional_string("String")) {
    ADDER_CHECK(!literal->empty(), "{}: expected a text, got an empty one", pattern.where());
    return {*std::move(literal), false};
  }
  return {pattern.string("Regex"), true};
}

SplitBehavior read_behavior(const Node& node, std::string_view fallback) {
  const std::string name = node.optional_string("behavior").value_or(std::string(fallback));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.unsupported("behavior", name,
                   "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Metaspace has had three spellings of the same choice.
PrependScheme read_prepend_scheme(const Node& node) {
  const auto scheme = node.optional_string("prepend_scheme");
  if (!scheme) {
    return node.boolean("add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  if (*scheme == "always") return PrependScheme::kAlways;
  if (*scheme == "first") return PrependScheme::kFirst;
  if (*scheme == "never") return PrependScheme::kNever;
  node.unsupported("prepend_scheme", *scheme, "always, first or never");
}

void read_normalizer(const Node& node, Normalizer& normalizer) {
  if (!node) return;
  const std::string type = node.string("type");
  if (type == "NFC") {
    normalizer.add_form(NormalForm::kNfc);
  } else if (type == "NFD") {
    normalizer.add_form(NormalForm::kNfd);
  } else if (type == "NFKC") {
    normalizer.add_form(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    normalizer.add_form(NormalForm::kNfkd);
  } else if (type == "Prepend") {
    normalizer.add_prepend(node.string("prepend"));
  } else if (type == "Replace") {
    Pattern pattern = read_pattern(node);
    if (pattern.regex) {
      normalizer.add_replace(Regex(pattern.text, node.field("pattern")), node.string("content"));
    } else {
      normalizer.add_replace(std::move(pattern.text), node.string("content"));
    }
  } else if (type == "Sequence") {
    for (const Node& step : node.objects("normalizers")) read_normalizer(step, normalizer);
  } else {
    node.unsupported("type", type, "NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence");
  }
}

void read_pretokenizer(const Node& node, Pretokenizer& pretokenizer) {
  if (!node) return;
  const std::string type = node.string("type");
  if (type == "ByteLevel") {
    if (pretokenizer.is_byte_level()) node.unsupported("type", type, "at most one ByteLevel");
    pretokenizer.add_byte_level(node.boolean("add_prefix_space", true),
                                node.boolean("use_regex", true));
  } else if (type == "Split") {
    Pattern pattern = read_pattern(node);
    const SplitBehavior behavior = read_behavior(node, "");
    const bool invert = node.boolean("invert", false);
    if (pattern.regex) {
      pretokenizer.add_regex(Regex(pattern.text, node.field("pattern")), behavior, invert);
    } else {
      pretokenizer.add_literal(std::move(pattern.text), behavior, invert);
    }
  } else if (type == "Digits") {
    pretokenizer.add_digits(node.boolean("individual_digits", false));
  } else if (type == "Punctuation") {
    pretokenizer.add_punctuation(read_behavior(node, "Isolated"));
  } else if (type == "Metaspace") {
    std::string replacement = node.optional_string("replacement").value_or("\u2581");
    ADDER_CHECK(!replacement.empty(), "{}: expected a character, got nothing",
                node.field("replacement"));
    pretokenizer.add_metaspace(std::move(replacement), read_prepend_scheme(node),
                               node.boolean("split", true));
  } else if (type == "WhitespaceSplit") {
    pretokenizer.add_white_space();
  } else if (type == "Whitespace") {
    pretokenizer.add_regex(Regex(R"(\w+|[^\w\s]+)", node.where()), SplitBehavior::kRemoved, true);
  } else if (type == "Sequence") {
    for (const Node& step : node.objects("pretokenizers")) read_pretokenizer(step, pretokenizer);
  } else {
    node.unsupported("type", type,
                     "ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, "
                     "WhitespaceSplit or Sequence");
  }
}

void read_decoder(const Node& node, BpeTokenizerSpec& spec) {
  if (!node) return;
  const std::string type = node.string("type");
  if (type == "ByteLevel") {
    // Without byte-level words the vocabulary would not be spelled in bytes.
    if (!spec.pretokenizer.is_byte_level()) {
      node.unsupported("type", type, "ByteLevel only with a ByteLevel pre_tokenizer");
    }
  } else if (type == "Metaspace") {
    spec.decode_replacements.emplace_back(node.optional_string("replacement").value_or("\u2581"),
                                          " ");
    spec.decode_strips_blank = read_prepend_scheme(node) != PrependScheme::kNever;
  } else if (type == "ByteFallback") {
    spec.decode_byte_fallback = true;
  } else if (type == "Replace") {
    Pattern pattern = read_pattern(node);
    if (pattern.regex) node.unsupported("pattern", pattern.text, "a String");
    spec.decode_replacements.emplace_back(std::move(pattern.text), node.string("content"));
  } else if (type == "Strip") {
    const std::string content = node.string("content");
    const int64_t start = node.integer("start"), stop = node.integer("stop");
    if (content != " " || start > 1 || start < 0 || stop != 0) {
      node.unsupported("content", content, "one blank at the start");
    }
    spec.decode_strips_blank = start == 1;
  } else if (type == "Sequence") {
    for (const Node& step : node.objects("decoders")) read_decoder(step, spec);
  } else if (type != "Fuse") {
    node.unsupported("type", type,
                     "ByteLevel, Metaspace, ByteFallback, Replace, Strip, Fuse or Sequence");
  }
}

// Only the token that a template puts in front matters to an engine that continues texts.
std::optional<std::string> read_template_bos(const Node& node) {
  if (!node) return std::nullopt;
  const std::string type = node.string("type");
  if (type == "TemplateProcessing") {
    const std::vector<Node> single = node.objects("single");
    if (single.empty()) return std::nullopt;
    return single[0].object("SpecialToken").optional_string("id");
  }
  if (type == "Sequence") {
    for (const Node& step : node.objects("processors")) {
      if (auto bos = read_template_bos(step)) return bos;
    }
  }
  return std::nullopt;
}

void read_model(const Node& model, BpeTokenizerSpec& spec) {
  ADDER_CHECK(static_cast<bool>(model), "{}: expected an object, got nothing", model.where());
  const std::string type = model.optional_string("type").value_or("BPE");
  if (type != "BPE")
    model.unsupported("type", type, "BPE (a Unigram model works as tokenizer.model)");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto text = model.optional_string(key);
    if (text && !text->empty()) model.unsupported(key, *text, "nothing");
  }
  const Json* dropout = model.find("dropout");
  if (dropout != nullptr && *dropout != 0) model.unsupported("dropout", dropout->dump(), "null");
  spec.options.byte_fallback = model.boolean("byte_fallback", false);
  spec.options.ignore_merges = model.boolean("ignore_merges", false);
  spec.options.fuse_unk = model.boolean("fuse_unk", false);
  if (const auto unk = model.optional_string("unk_token")) {
    const auto id = spec.vocabulary.find(*unk);
    ADDER_CHECK(id.has_value(), "{}: '{}' is not in model.vocab", model.field("unk_token"), *unk);
    spec.options.unk_id = *id;
  }
}

std::vector<AddedToken> read_added_tokens(const Node& root) {
  constexpr int64_t kIdLimit = int64_t{1} << 22;
  constexpr size_t kLongest = 1024;  // a search costs up to this much for each byte of text
  std::vector<AddedToken> tokens;
  for (const Node& node : root.objects("added_tokens")) {
    const int64_t id = node.integer("id");
    ADDER_CHECK(id >= 0 && id < kIdLimit, "{}: expected 0 .. {}, got {}", node.field("id"),
                kIdLimit - 1, id);
    AddedToken token{.id = static_cast<int32_t>(id),
                     .content = node.string("content"),
                     .special = node.boolean("special", false),
                     .lstrip = node.boolean("lstrip", false),
                     .rstrip = node.boolean("rstrip", false),
                     .single_word = node.boolean("single_word", false),
                     .normalized = node.boolean("normalized", true)};
    ADDER_CHECK(token.content.size() <= kLongest, "{}: expected at most {} bytes, got {}",
                node.field("content"), kLongest, token.content.size());
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerJsonParts parts = read_tokenizer_json(text, name);
  BpeTokenizerSpec spec;
  spec.vocabulary = std::move(parts.vocabulary);
  spec.merges = std::move(parts.merges);
  const Node root(&parts.config, name + ": tokenizer");
  read_model(root.object("model"), spec);
  ADDER_CHECK(spec.vocabulary.count() > 0, "{}: model.vocab: expected tokens, got none", name);
  spec.added = read_added_tokens(root);
  read_normalizer(root.object("normalizer"), spec.normalizer);
  read_pretokenizer(root.object("pre_tokenizer"), spec.pretokenizer);
  read_decoder(root.object("decoder"), spec);
  spec.bos = read_template_bos(root.object("post_processor"));
  return make_bpe_tokenizer(std::move(spec), name);
}

}  // namespace adder
