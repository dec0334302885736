// SentencePiece's BPE for models with byte fallback and without normalisation, in our merge loop.
//
// SentencePiece merges the two neighbours whose joined text is the piece of highest score. With
// ranks for scores and one table entry for every way to cut a piece in two, that is byte pair
// encoding.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/sentencepiece_model.h"
#include "text/string_table.h"

namespace adder {

class SentencePieceMerges {
 public:
  // True for BPE models with byte fallback, whose text is not changed but for blanks, without
  // unused pieces, and with a piece for each character that occurs in pieces.
  static bool can_run(const SentencePieceModel& model);

  SentencePieceMerges(const SentencePieceModel& model, const std::array<int32_t, 256>& byte_ids);
  SentencePieceMerges(const SentencePieceMerges&) = delete;
  SentencePieceMerges& operator=(const SentencePieceMerges&) = delete;

  // Appends the ids of valid UTF-8 text, which has its dummy prefix already.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  StringTable normal_;              // the normal pieces; others are not made by merging
  AddedTokenMatcher user_defined_;  // found first, and never merged
  Bpe bpe_;
  bool blanks_only_lead_ = true;  // no piece has U+2581 behind another character
};

}  // namespace adder
