// The tokenizer that tokenizer.json describes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/string_table.h"
#include "text/tokenizer.h"

namespace adder {

struct BpeTokenizerSpec {
  StringTable vocabulary;  // as spelled in the file: GPT-2 characters when the model is byte level
  MergeTable merges;
  BpeOptions options;  // `bytes` follows the pretokenizer
  std::vector<AddedToken> added;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  // Decoding: replacements inside each token, then byte tokens, then one blank less in front.
  std::vector<std::pair<std::string, std::string>> decode_replacements;
  bool decode_byte_fallback = false;
  bool decode_strips_blank = false;
  std::optional<std::string> bos;  // put first where add_bos is set
};

// Throws Error(kBadInput): an added token without a valid id, an unknown bos.
// `name` is the file name used in messages.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeTokenizerSpec spec, const std::string& name);

}  // namespace adder
