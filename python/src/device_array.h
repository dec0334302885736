// Results on a GPU for callers whose arrays are known by DLPack only.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>

#include "core/buffer.h"
#include "ops/array_view.h"

namespace adder::python {

// An array that owns its memory, and that DLPack can take away. It is complete: nothing is queued
// that still writes it.
struct DeviceArray {
  ops::ArrayView view;
  int device = 0;
  std::shared_ptr<const Buffer> memory;
};

// A new one, row-major, of the kind of `like`: CuPy's where that is CuPy's. *view is where it lies.
pybind11::object make_device_array(pybind11::handle like, int device,
                                   std::span<const int64_t> shape, DType dtype, bool is_complex,
                                   ops::ArrayView* view);

}  // namespace adder::python
