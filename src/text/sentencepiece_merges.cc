#include "text/sentencepiece_merges.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "text/normalizer.h"
#include "text/unicode.h"

namespace adder {
namespace {

// The next place at or after `from` where U+2581 follows another character.
size_t next_word(std::string_view text, size_t from) {
  for (size_t at = text.find(kBlank, from); at != std::string_view::npos;
       at = text.find(kBlank, at + kBlank.size())) {
    if (at > 0 && !text.substr(0, at).ends_with(kBlank)) return at;
  }
  return text.size();
}

}  // namespace

bool SentencePieceMerges::can_run(const SentencePieceModel& model) {
  if (!model.is_bpe || !model.byte_fallback || !model.charsmap.empty() ||
      !model.escape_whitespaces || model.remove_extra_whitespaces ||
      model.treat_whitespace_as_suffix) {
    return false;
  }
  StringTable characters;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type == PieceType::kUnused) return false;
    if (piece.type == PieceType::kNormal && next_utf8(piece.text, 0).length == piece.text.size()) {
      characters.insert(static_cast<int32_t>(id), piece.text);
    }
  }
  for (const auto& piece : model.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    for (size_t at = 0; at < piece.text.size();) {
      const size_t length = next_utf8(piece.text, at).length;
      if (!characters.find(piece.text.substr(at, length))) return false;
      at += length;
    }
  }
  return true;
}

SentencePieceMerges::SentencePieceMerges(const SentencePieceModel& model,
                                         const std::array<int32_t, 256>& byte_ids) {
  std::vector<float> scores;
  std::vector<AddedToken> user_defined;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    if (piece.type == PieceType::kNormal) {
      normal_.insert(id, piece.text);
      scores.push_back(piece.score);
      blanks_only_lead_ = blanks_only_lead_ && next_word(piece.text, 0) == piece.text.size();
    } else if (piece.type == PieceType::kUserDefined) {
      user_defined.push_back({.id = id, .content = std::string(piece.text)});
    }
  }
  user_defined_ = AddedTokenMatcher(std::move(user_defined));
  // Equal scores get equal ranks, so that the leftmost of them is merged first.
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  MergeTable merges;
  for (int32_t id = 0; id < normal_.size(); ++id) {
    const std::string_view text = normal_.text(id);
    const float score = model.pieces[static_cast<size_t>(id)].score;
    const auto rank = static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin());
    for (size_t cut = 0; cut < text.size();) {
      cut += next_utf8(text, cut).length;
      const auto left = normal_.find(text.substr(0, cut)), right = normal_.find(text.substr(cut));
      if (cut < text.size() && left && right) merges.insert(*left, *right, rank, id);
    }
  }
  bpe_ = Bpe(&normal_, std::move(merges), {.byte_fallback = true});
  bpe_.set_byte_ids(byte_ids);
}

void SentencePieceMerges::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string escaped = replace_all(text, " ", kBlank);
  const std::string_view all = escaped;
  Bpe::Scratch scratch;
  for (const auto& piece : user_defined_.split(all, [](size_t, size_t) { return true; })) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    std::string_view left = all.substr(piece.begin, piece.end - piece.begin);
    while (!left.empty()) {
      // Nothing merges across the start of a word, if no piece reaches across one.
      const size_t end = blanks_only_lead_ ? next_word(left, 0) : left.size();
      bpe_.encode(left.substr(0, end), ids, scratch);
      left.remove_prefix(end);
    }
  }
}

}  // namespace adder
