// Any bytes as the pickle inside a torch file, without the checksum that stands before it there.
#include "fuzz_io.h"
#include "io/unpickler.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adder;
  fuzzing::contained([&] {
    const PickledData pickled = unpickle(fuzzing::input(data, size), "data.pkl");
    for (PickledData::Ref ref = 0; ref < pickled.size(); ++ref) {
      const PickledData::Value& value = pickled.at(ref);
      for (const PickledData::Ref item : value.items) {
        if (item >= pickled.size()) std::abort();
      }
      const bool is_dict = value.kind == PickledData::Kind::kDict;
      if (is_dict && value.items.size() % 2 != 0) std::abort();
    }
    for (const PickledTensor& tensor : pickled.tensors()) {
      if (!layout_fits(tensor.shape, tensor.stride, tensor.offset, tensor.storage_size)) {
        std::abort();
      }
    }
  });
  return 0;
}
