// Apart from the other devices: the Python module's tests link one for the emulator in its place.
#include "backends/registry.h"
#ifdef ADDER_HAVE_CUDA
#include "backends/cuda/arrays/array_device.h"
#endif
#include "core/error.h"

namespace adder {

std::unique_ptr<ArrayDevice> make_array_device(int index) {
#ifdef ADDER_HAVE_CUDA
  return ADDER_CUDA_NS::make_array_device(index);
#else
  fail(ErrorCode::kUnsupported, "cuda:{}: this build has no CUDA backend", index);
#endif
}

bool has_array_device() {
#ifdef ADDER_HAVE_CUDA
  return true;
#else
  return false;
#endif
}

}  // namespace adder
