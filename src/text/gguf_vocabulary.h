// Tokenizers as GGUF metadata holds them (the keys tokenizer.ggml.*), both ways.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace adder {

// The numbers of tokenizer.ggml.token_type; those of SentencePiece.
enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufVocabulary {
  std::string model;  // "gpt2": byte-level BPE with merges; "llama": SentencePiece BPE with scores
  std::string pre;    // "gpt2" only: what cuts text into words
  std::vector<std::string> tokens;  // by id; gpt2's in GPT-2 characters
  std::vector<float> scores;        // of every token, or empty
  std::vector<int32_t> types;       // of every token, or empty: all normal
  std::vector<std::string> merges;  // "left right", by rank
  std::optional<int32_t> bos, eos, unk;
  std::optional<bool> add_bos, add_space_prefix;
};

// Ids that are not padding: what is left without "[PAD<id>]" and unused tokens at the end.
int32_t gguf_vocabulary_size(const GgufVocabulary& vocabulary);

// Text that a tokenizer of this kind has in a folder of Hugging Face: tokenizer.json for "gpt2", a
// SentencePiece model for "llama".
// pre: gpt-2; olmo and mpt (GPT-NeoX, with NFC, which llama.cpp leaves out); falcon; llama-bpe and
// its family; dbrx, smaug-bpe; qwen2; starcoder, refact; "default" or none is olmo when the first
// tokens are GPT-NeoX's, else gpt-2.
// Throws Error(kUnsupported) for another model or pre, Error(kBadInput) for arrays that do not fit.
std::string gguf_tokenizer_file(const GgufVocabulary& vocabulary, const std::string& name);

// The tokenizer itself; `name` is the file name in messages. Throws as above.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                               const std::string& name);

// The way back, from the files of a folder: tokenizer.json or a SentencePiece model, and what
// `tokenizer`, loaded from it, knows about bos and eos. Throws Error(kUnsupported) for a
// tokenizer that GGUF has no name for.
GgufVocabulary to_gguf_vocabulary(std::string_view file_bytes, const Tokenizer& tokenizer,
                                  const std::string& name);
// 256 ids, one per byte.
GgufVocabulary gguf_byte_vocabulary();

}  // namespace adder
