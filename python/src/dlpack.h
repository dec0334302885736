// Arrays of libraries that are known by DLPack alone, and arrays given to them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "ops/array_view.h"

namespace adder::python {

// In whose memory an array lies by its __dlpack_device__(): kHost, or the number of a GPU. Host
// memory too if it has no such method. TypeError for other devices.
int dlpack_device(pybind11::handle value, const char* op, const char* name);

// What value.__dlpack__() describes, valid as long as *keep is. device: what dlpack_device() said;
// on a GPU its memory may be used on `stream` then. op, name: for messages.
// TypeError: no capsule of DLPack, another device than it said, a dtype that no operation takes.
// ValueError: sizes that no memory can have. Whether the exporter tells the truth about its memory
// cannot be seen.
ops::ArrayView dlpack_view(pybind11::handle value, int device, std::optional<int64_t> stream,
                           const char* op, const char* name, std::vector<pybind11::object>* keep);

// A capsule for others of an array on a GPU.
pybind11::object dlpack_capsule(const ops::ArrayView& view, int device,
                                std::shared_ptr<const Buffer> memory);

inline constexpr int kDlpackCuda = 2;  // kDLCUDA

}  // namespace adder::python
