// A SentencePiece model file as plain data, checked before libsentencepiece sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

// The values are those of sentencepiece_model.proto.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// U+2581, which stands for a blank in pieces.
inline constexpr std::string_view kBlank = "\xe2\x96\x81";

struct SentencePieceModel {
  struct Piece {
    std::string_view text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;
  bool is_bpe = false;  // otherwise unigram
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string_view charsmap;  // the normaliser's compiled rules; empty = identity
  std::string_view bos_piece = "<s>", eos_piece = "</s>", unk_piece = "<unk>", pad_piece = "<pad>";
  std::string_view unk_surface = " \xe2\x81\x87 ";
};

// Views into `bytes`. libsentencepiece trusts its input in places (array bounds inside the compiled
// rules, nesting of user-defined pieces, zero bytes in pieces): all of that is checked here.
// Throws Error(kBadInput), or Error(kUnsupported) for models of type word or char.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& name);

// The same model as bytes for libsentencepiece, with the given choice of dummy prefix and without
// the fields that only training uses.
std::string write_sentencepiece_model(const SentencePieceModel& model, bool add_dummy_prefix);

}  // namespace adder
