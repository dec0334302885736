// SentencePiece models (tokenizer.model).
//
// Models as language models use them - BPE, byte fallback, no normalisation - are run by our own
// merge loop: libsentencepiece takes 2 s and 290 MB for a megabyte of text, the loop a tenth of
// that. All other models are run by the library. Both give the same ids (tests compare them).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace adder {

enum class SentencePieceEngine { kFastest, kLibrary };

// Reads the bytes of a model of type BPE or unigram. Control pieces are found in text only where
// parse_special is set; each text at the start or after a control piece gets the dummy blank that
// the model asks for, and a text that follows stray bytes does not.
// `name` is the file name used in messages.
// Throws Error(kBadInput) for malformed bytes, Error(kUnsupported) for another model type.
std::unique_ptr<Tokenizer> parse_sentencepiece(
    std::string_view bytes, const std::string& name,
    SentencePieceEngine engine = SentencePieceEngine::kFastest);

}  // namespace adder
