// Any bytes as a GGUF file: the container, the config derived from it, and its tokenizer.
#include "io/gguf.h"

#include "engine/gguf_tokenizer.h"
#include "fuzz_io.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adder;
  const auto bytes = fuzzing::input(data, size);
  fuzzing::contained([&] {
    const GgufFile file = read_gguf(bytes, "fuzz.gguf");
    fuzzing::touch(file.tensors);
    uint64_t total = 0;
    for (const StoredTensor& tensor : file.tensors.tensors) {
      total += row_bytes(tensor.dtype, tensor.size());
      if (!tensor.is_contiguous()) std::abort();
    }
    if (total > size) std::abort();  // no overlap: never more than the file
    for (const auto& item : file.metadata.values()) {
      const std::string_view key = item.first;
      fuzzing::contained([&] { file.metadata.get_number(key); });
      fuzzing::contained([&] { file.metadata.get_strings(key); });
      fuzzing::contained([&] { file.metadata.get_floats(key); });
      fuzzing::contained([&] { file.metadata.get_ints(key); });
    }
    fuzzing::contained([&] {
      if (const auto tokenizer = load_gguf_tokenizer(file.metadata)) {
        const auto ids = tokenizer->encode(" The 123 caf\xc3\xa9's <s>\n\xff x  ");
        (void)tokenizer->decode(ids);
      }
    });
  });
  fuzzing::contained([&] { derive_config(Checkpoint::from_gguf(bytes, "fuzz.gguf")); });
  return 0;
}
