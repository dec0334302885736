// Reader of Hugging Face's tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace adder {

// What is read: model BPE (merges as "a b" or ["a", "b"]); normalizers NFC, NFD, NFKC, NFKD,
// Prepend, Replace, Sequence; pre_tokenizers ByteLevel, Split, Digits, Punctuation, Metaspace,
// Whitespace, WhitespaceSplit, Sequence; decoders ByteLevel, Metaspace, ByteFallback, Replace,
// Strip, Fuse, Sequence; the first token of a TemplateProcessing post_processor as bos.
// `name` is the file name used in messages.
// Throws Error(kBadInput) on malformed text and Error(kUnsupported) on any other kind.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace adder
