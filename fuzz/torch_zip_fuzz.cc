// Any bytes as a file of torch.save.
#include "io/torch_zip.h"

#include "fuzz_io.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adder;
  fuzzing::contained([&] {
    const TensorFile file = read_torch_zip(fuzzing::input(data, size), "fuzz.bin");
    fuzzing::touch(file);
    for (const StoredTensor& tensor : file.tensors) {
      if (tensor.size() > static_cast<int64_t>(size)) std::abort();  // expanded tensors are refused
    }
  });
  return 0;
}
