// The tokenizer inside a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "io/checkpoint.h"
#include "io/gguf_writer.h"
#include "text/chat_template.h"
#include "text/gguf_vocabulary.h"

namespace adder {

// Nothing when the file says that it has no tokenizer. Throws Error(kBadInput) naming the key for
// values of another type.
std::optional<GgufVocabulary> read_gguf_vocabulary(const GgufMetadata& metadata);

// The tokenizer of a GGUF file; null when there is none.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufMetadata& metadata);

// tokenizer.chat_template, where it is one of those that Adder knows.
std::optional<ChatTemplate> gguf_chat_template(const GgufMetadata& metadata);

// Adds the keys tokenizer.ggml.* to a file whose embedding has `rows` rows: llama.cpp wants a token
// for each, so the missing ones become "[PAD<id>]". Throws Error(kBadInput) for more tokens than
// rows; `name` is the model in the message.
void add_gguf_vocabulary(GgufWriter& writer, GgufVocabulary vocabulary, int64_t rows,
                         const std::string& name);

// The vocabulary of a model of any dialect, for add_gguf_vocabulary(): that of its GGUF file, its
// byte tokenizer, or the tokenizer file beside it; nothing when it has none.
std::optional<GgufVocabulary> gguf_vocabulary_of(const Checkpoint& checkpoint);

}  // namespace adder
