// GGUF's names for the ways to cut text into words, beside tokenizer.json's description of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace adder {

struct GgufPretokenizer {
  std::string normalizer, pre_tokenizer;  // JSON, as tokenizer.json has it
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

// Nothing for a name that is not known.
std::optional<GgufPretokenizer> find_gguf_pretokenizer(std::string_view pre);
std::string gguf_pretokenizer_names();  // for messages

// The name of what a tokenizer.json says; nothing when none of the known ones cuts like it.
std::optional<std::string> name_gguf_pretokenizer(const GgufPretokenizer& description);

}  // namespace adder
