// Loads a tokenizer.json from any bytes; one that loads must encode and decode without harm.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = adder::parse_tokenizer_json(text, "fuzz");
    for (const bool special : {false, true}) {
      const auto ids = tokenizer->encode(" The 123 caf\xc3\xa9's <s>\n\xff\xe2\x96\x81 x  ",
                                         {.parse_special = special, .add_bos = true});
      (void)tokenizer->decode(ids, special);
    }
  } catch (const adder::Error&) {
  }
  return 0;
}
