#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/joined_parts.h"
#include "text/unicode.h"

namespace adder {
namespace {

// "<0x0A>" -> "\n"
std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t value = 0;
  const auto result = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (result.ec != std::errc() || result.ptr != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeTokenizerSpec spec, const std::string& name);

  using Tokenizer::encode;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    const TextPart part{text, options.parse_special};
    return encode_parts({&part, 1}, options.add_bos);
  }
  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_bos) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string_view token_bytes(int32_t id) const override {
    check_id(id);
    return decoded().text(id);
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && static_cast<size_t>(id) < special_.size() &&
           special_[static_cast<size_t>(id)];
  }
  bool strips_leading_space() const override { return strips_blank_; }
  bool adds_blank_after_special() const override {
    return normalizer_.prepends() || pretokenizer_.prepends_always();
  }
  int32_t size() const override { return size_; }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (const auto id = added_.find(token)) return id;
    return vocabulary_.find(token);
  }
  std::string_view kind() const override { return bytes_ ? "byte-level BPE" : "BPE"; }

 private:
  void check_id(int32_t id) const {
    ADDER_CHECK(id >= 0 && id < size_, "token id: expected 0 .. {}, got {}", size_ - 1, id);
  }
  const StringTable& decoded() const { return bytes_ ? vocabulary_ : decoded_; }
  void spell_in_bytes(const StringTable& spelled);
  void make_decoded(const BpeTokenizerSpec& spec);
  void encode_text(std::string_view text, bool at_start, std::vector<int32_t>& ids,
                   Bpe::Scratch& scratch) const;
  void encode_valid(std::string_view text, bool at_start, bool after_bytes,
                    std::vector<int32_t>& ids, Bpe::Scratch& scratch) const;

  StringTable vocabulary_;  // listed: what text may become; unlisted: added tokens
  StringTable decoded_;     // what a token decodes to, where that is not its spelling
  StringTable added_;
  Bpe bpe_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  AddedTokenMatcher before_normalizer_, after_normalizer_;
  std::vector<bool> special_;
  bool bytes_, strips_blank_;
  int32_t size_ = 0;
};

BpeTokenizer::BpeTokenizer(BpeTokenizerSpec spec, const std::string& name)
    : normalizer_(std::move(spec.normalizer)),
      pretokenizer_(std::move(spec.pretokenizer)),
      bytes_(pretokenizer_.is_byte_level()),
      strips_blank_(spec.decode_strips_blank) {
  std::vector<AddedToken> before, after;
  for (AddedToken& token : spec.added) {
    // Control tokens are never looked for in normalised text: a normaliser that writes in front
    // of the text would make them unfindable.
    const bool raw = token.special || !token.normalized || normalizer_.empty();
    (raw ? before : after).push_back(token);
    if (!raw) after.back().content = normalizer_.apply(token.content, true);
    size_ = std::max(size_, token.id + 1);
    if (!added_.insert(token.id, token.content)) {
      bad_input("{}: added_tokens: '{}' or its id {} occurs twice", name, token.content, token.id);
    }
  }
  before_normalizer_ = AddedTokenMatcher(std::move(before));
  after_normalizer_ = AddedTokenMatcher(std::move(after));
  size_ = std::max(size_, spec.vocabulary.size());
  special_.resize(static_cast<size_t>(size_));
  for (const AddedToken& token : spec.added)
    special_[static_cast<size_t>(token.id)] = token.special;
  if (bytes_) {
    spell_in_bytes(spec.vocabulary);
  } else {
    vocabulary_ = std::move(spec.vocabulary);
    make_decoded(spec);
  }
  spec.options.bytes = bytes_;
  bpe_ = Bpe(&vocabulary_, std::move(spec.merges), spec.options);
  if (spec.bos) {
    bos_id_ = token_to_id(*spec.bos);
    ADDER_CHECK(bos_id_.has_value(), "{}: post_processor: token '{}' is not in the vocabulary",
                name, *spec.bos);
    wants_bos_ = true;
  }
}

// From GPT-2 characters to bytes. Tokens with other characters can never come out of text, since
// text is only made of the 256; they keep their spelling. Control tokens are kept out of reach, so
// that text which happens to be their spelling stays text.
void BpeTokenizer::spell_in_bytes(const StringTable& spelled) {
  for (int32_t id = 0; id < spelled.size(); ++id) {
    if (!spelled.has(id) || added_.has(id)) continue;
    const auto bytes = characters_to_bytes(spelled.text(id));
    if (!bytes || !vocabulary_.insert(id, *bytes)) {
      vocabulary_.set_unlisted(id, bytes ? std::string_view(*bytes) : spelled.text(id));
    }
  }
  for (int32_t id = 0; id < added_.size(); ++id) {
    if (!added_.has(id)) continue;
    const auto bytes = characters_to_bytes(added_.text(id));
    const bool reachable = !is_special(id) && spelled.has(id) && bytes == added_.text(id);
    if (!reachable || !vocabulary_.insert(id, *bytes)) {
      vocabulary_.set_unlisted(id, added_.text(id));
    }
  }
  vocabulary_.shrink_to_fit();
}

void BpeTokenizer::make_decoded(const BpeTokenizerSpec& spec) {
  for (int32_t id = 0; id < size_; ++id) {
    std::string text(added_.has(id) ? added_.text(id) : vocabulary_.text(id));
    for (const auto& [from, to] : spec.decode_replacements) text = replace_all(text, from, to);
    if (spec.decode_byte_fallback && !added_.has(id)) {
      if (const auto byte = byte_token(text)) text.assign(1, *byte);
    }
    decoded_.set_unlisted(id, text);
  }
  decoded_.shrink_to_fit();
}

std::vector<int32_t> BpeTokenizer::encode_parts(std::span<const TextPart> parts,
                                                bool add_bos) const {
  const JoinedParts joined(parts);
  const std::string_view text = joined.text();
  const auto allow_special = [&joined](size_t begin, size_t end) {
    return joined.allows_special(begin, end);
  };
  std::vector<int32_t> ids;
  if (add_bos && wants_bos()) ids.push_back(*bos_id_);
  Bpe::Scratch scratch;
  for (const auto& piece : before_normalizer_.split(text, allow_special)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_text(text.substr(piece.begin, piece.end - piece.begin), piece.begin == 0, ids,
                  scratch);
    }
  }
  return ids;
}

// Normalisers and patterns need UTF-8: bytes that are not go to the model as they are.
void BpeTokenizer::encode_text(std::string_view text, bool at_start, std::vector<int32_t>& ids,
                               Bpe::Scratch& scratch) const {
  size_t done = 0;
  while (done < text.size()) {
    const size_t valid = valid_utf8_prefix(text.substr(done));
    if (valid > 0)
      encode_valid(text.substr(done, valid), at_start && done == 0, done > 0, ids, scratch);
    done += valid;
    size_t bad = done;
    while (bad < text.size()) {
      const Utf8Part part = next_utf8(text, bad);
      if (part.kind == Utf8Kind::kValid) break;
      bad += part.length;
    }
    bpe_.encode(text.substr(done, bad - done), ids, scratch);
    done = bad;
  }
}

void BpeTokenizer::encode_valid(std::string_view text, bool at_start, bool after_bytes,
                                std::vector<int32_t>& ids, Bpe::Scratch& scratch) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = normalizer_.apply(text, !after_bytes);
    text = normalized;
  }
  // No control tokens are among those looked for here.
  const auto allow_none = [](size_t, size_t) { return false; };
  for (const auto& piece : after_normalizer_.split(text, allow_none)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const bool first = piece.begin == 0;
    const auto words =
        pretokenizer_.split(std::string(text.substr(piece.begin, piece.end - piece.begin)),
                            at_start && first, after_bytes && first);
    for (size_t i = 0; i < words.ranges.size(); ++i) bpe_.encode(words.word(i), ids, scratch);
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool first = true;
  for (const int32_t id : ids) {
    std::string_view bytes = token_bytes(id);
    if (bytes.empty() || (skip_special && is_special(id))) continue;
    if (first && strips_blank_ && bytes.front() == ' ') bytes.remove_prefix(1);
    first = false;
    text.append(bytes);
  }
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeTokenizerSpec spec, const std::string& name) {
  return std::make_unique<BpeTokenizer>(std::move(spec), name);
}

}  // namespace adder
