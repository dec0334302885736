// Any bytes as a safetensors file.
#include "io/safetensors.h"

#include "fuzz_io.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adder;
  fuzzing::contained([&] {
    const TensorFile file = read_safetensors(fuzzing::input(data, size), "fuzz.safetensors");
    fuzzing::touch(file);
    int64_t total = 0;
    for (const StoredTensor& tensor : file.tensors) {
      total += tensor.size() * static_cast<int64_t>(dtype_size(tensor.dtype));
      if (!tensor.is_contiguous()) std::abort();
    }
    if (total > static_cast<int64_t>(size)) std::abort();  // no overlap: never more than the file
  });
  return 0;
}
