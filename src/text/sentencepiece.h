// SentencePiece models (tokenizer.model), run by libsentencepiece.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace adder {

// Reads the bytes of a model of type BPE or unigram. Control pieces are found in text only where
// parse_special is set; each text at the start or after a control piece gets the dummy blank that
// the model asks for, and a text that follows stray bytes does not.
// `name` is the file name used in messages.
// Throws Error(kBadInput) for malformed bytes, Error(kUnsupported) for another model type.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name);

}  // namespace adder
