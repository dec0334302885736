// First half of the tokenizer.json reader: the text into tables. The vocabulary and the merges,
// nine tenths of the file, go straight into compact tables; only the rest becomes a JSON tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/bpe.h"
#include "text/string_table.h"

namespace adder {

struct TokenizerJsonParts {
  nlohmann::json config;   // the file without model.vocab and model.merges
  StringTable vocabulary;  // as spelled in the file
  MergeTable merges;
};

// Throws Error(kBadInput): malformed JSON, more than 64 levels, a token or id that occurs twice, an
// id outside [0, 2^22), a merge of unknown tokens.
TokenizerJsonParts read_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace adder
