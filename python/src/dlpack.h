// Arrays of libraries that are known by DLPack alone.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "ops/array_view.h"

namespace adder::python {

// What value.__dlpack__() describes, valid as long as *keep is. op, name: for messages.
// TypeError: no capsule of DLPack, a device or dtype that no operation takes. ValueError: sizes
// that no memory can have. Whether the exporter tells the truth about its memory cannot be seen.
ops::ArrayView dlpack_view(pybind11::handle value, const char* op, const char* name,
                           std::vector<pybind11::object>* keep);

}  // namespace adder::python
