#include "text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/added_tokens.h"
#include "text/joined_parts.h"
#include "text/normalizer.h"
#include "text/sentencepiece_merges.h"
#include "text/sentencepiece_model.h"
#include "text/string_table.h"
#include "text/unicode.h"

namespace adder {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& name,
                         SentencePieceEngine engine);

  using Tokenizer::encode;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    const TextPart part{text, options.parse_special};
    return encode_parts({&part, 1}, options.add_bos);
  }
  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_bos) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string_view token_bytes(int32_t id) const override {
    ADDER_CHECK(id >= 0 && id < size(), "token id: expected 0 .. {}, got {}", size() - 1, id);
    return decoded_.text(id);
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < size() && special_[static_cast<size_t>(id)];
  }
  bool strips_leading_space() const override { return dummy_prefix_; }
  bool adds_blank_after_special() const override { return dummy_prefix_; }
  int32_t size() const override { return static_cast<int32_t>(special_.size()); }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    return pieces_.find(token);
  }
  std::string_view kind() const override {
    return is_bpe_ ? "SentencePiece BPE" : "SentencePiece unigram";
  }

 private:
  void encode_text(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_valid(std::string_view text, bool after_bytes, std::vector<int32_t>& ids) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> library_;  // or else merges_
  std::unique_ptr<const SentencePieceMerges> merges_;
  StringTable pieces_, decoded_;
  AddedTokenMatcher control_;
  std::vector<bool> special_;
  std::array<int32_t, 256> byte_ids_{};
  int32_t unk_id_ = 0;
  bool is_bpe_, dummy_prefix_;
  bool own_prefix_;  // the dummy prefix is put in front here and not by the library
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view bytes, const std::string& name,
                                               SentencePieceEngine engine) {
  const SentencePieceModel model = read_sentencepiece_model(bytes, name);
  is_bpe_ = model.is_bpe;
  dummy_prefix_ = model.add_dummy_prefix && !model.treat_whitespace_as_suffix;
  // The library cannot leave the prefix out for one call, which text after stray bytes needs.
  own_prefix_ = dummy_prefix_ && !model.remove_extra_whitespaces && model.escape_whitespaces;
  byte_ids_.fill(-1);
  std::vector<AddedToken> control;
  special_.resize(model.pieces.size());
  for (int32_t id = 0; id < size(); ++id) {
    const auto& piece = model.pieces[static_cast<size_t>(id)];
    std::string text = replace_all(piece.text, kBlank, " ");
    pieces_.insert(id, piece.text);
    if (piece.type == PieceType::kUnknown) {
      unk_id_ = id;
      text = model.unk_surface;
    } else if (piece.type == PieceType::kControl) {
      text = piece.text;
      control.push_back({.id = id, .content = text, .special = true});
    } else if (piece.type == PieceType::kByte) {
      uint8_t value = 0;
      const bool spelled =
          piece.text.size() == 6 && piece.text.starts_with("<0x") &&
          std::from_chars(piece.text.data() + 3, piece.text.data() + 5, value, 16).ptr ==
              piece.text.data() + 5;
      ADDER_CHECK(spelled, "{}: piece {}: expected a byte such as <0x0A>, got '{}'", name, id,
                  piece.text);
      byte_ids_[value] = id;
      text.assign(1, static_cast<char>(value));
    }
    decoded_.set_unlisted(id, text);
    special_[static_cast<size_t>(id)] =
        piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
  }
  for (const int32_t id : byte_ids_) {
    ADDER_CHECK(id >= 0 || !model.byte_fallback, "{}: expected 256 byte pieces, got fewer", name);
  }
  control_ = AddedTokenMatcher(std::move(control));
  const auto control_id = [&](std::string_view text) -> std::optional<int32_t> {
    const auto id = pieces_.find(text);
    return id && is_special(*id) ? id : std::nullopt;
  };
  bos_id_ = control_id(model.bos_piece);
  eos_id_ = control_id(model.eos_piece);
  wants_bos_ = bos_id_.has_value();  // what the models of this kind were trained with

  if (engine == SentencePieceEngine::kFastest && SentencePieceMerges::can_run(model)) {
    merges_ = std::make_unique<SentencePieceMerges>(model, byte_ids_);
    return;
  }
  library_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = library_->LoadFromSerializedProto(
      write_sentencepiece_model(model, model.add_dummy_prefix && !own_prefix_));
  ADDER_CHECK(status.ok(), "{}: libsentencepiece refuses the model: {}", name, status.ToString());
}

std::vector<int32_t> SentencePieceTokenizer::encode_parts(std::span<const TextPart> parts,
                                                          bool add_bos) const {
  const JoinedParts joined(parts);
  std::vector<int32_t> ids;
  if (add_bos && wants_bos()) ids.push_back(*bos_id_);
  const auto allow = [&](size_t begin, size_t end) { return joined.allows_special(begin, end); };
  for (const auto& piece : control_.split(joined.text(), allow)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_text(joined.text().substr(piece.begin, piece.end - piece.begin), ids);
    }
  }
  return ids;
}

void SentencePieceTokenizer::encode_text(std::string_view text, std::vector<int32_t>& ids) const {
  size_t done = 0;
  while (done < text.size()) {
    const size_t valid = valid_utf8_prefix(text.substr(done));
    if (valid > 0) encode_valid(text.substr(done, valid), done > 0, ids);
    done += valid;
    if (done == text.size()) break;
    const uint8_t stray = next_utf8(text, done).length;
    for (size_t i = done; i < done + stray; ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(text[i])];
      ids.push_back(id >= 0 ? id : unk_id_);
    }
    done += stray;
  }
}

void SentencePieceTokenizer::encode_valid(std::string_view text, bool after_bytes,
                                          std::vector<int32_t>& ids) const {
  std::string prefixed;
  if (own_prefix_ && !after_bytes) {
    prefixed.reserve(kBlank.size() + text.size());
    prefixed.append(kBlank).append(text);
    text = prefixed;
  }
  if (merges_) return merges_->encode(text, ids);
  std::vector<int> found;
  const auto status = library_->Encode({text.data(), text.size()}, &found);
  ADDER_CHECK(status.ok(), "libsentencepiece: {}", status.ToString());
  for (const int id : found) {
    // A control piece of one character would be found in plain text.
    const bool control = is_special(id) && id != unk_id_;
    ids.push_back(control ? unk_id_ : id);
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool first = true;
  for (const int32_t id : ids) {
    std::string_view bytes = token_bytes(id);
    if (bytes.empty() || (skip_special && is_special(id))) continue;
    if (first && dummy_prefix_ && bytes.front() == ' ') bytes.remove_prefix(1);
    first = false;
    text.append(bytes);
  }
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name,
                                               SentencePieceEngine engine) {
  return std::make_unique<SentencePieceTokenizer>(bytes, name, engine);
}

}  // namespace adder
