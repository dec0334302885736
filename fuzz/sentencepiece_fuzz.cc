// Loads a SentencePiece model from any bytes; both engines must take it without harm and agree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "text/sentencepiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kText =
      " The  snake's caf\xc3\xa9 [INST] \xff 12\n\xe2\x96\x81 def x ";
  try {
    const auto fastest = adder::parse_sentencepiece(bytes, "fuzz");
    const auto library =
        adder::parse_sentencepiece(bytes, "fuzz", adder::SentencePieceEngine::kLibrary);
    for (const bool special : {false, true}) {
      const adder::EncodeOptions options{.parse_special = special, .add_bos = true};
      const auto ids = fastest->encode(kText, options);
      if (ids != library->encode(kText, options)) std::abort();
      (void)fastest->decode(ids, special);
    }
  } catch (const adder::Error&) {
  }
  return 0;
}
