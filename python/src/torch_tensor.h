// PyTorch's tensors. PyTorch is never imported: a tensor can only come from one that is there
// already.
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <vector>

#include "ops/array_view.h"

namespace adder::python {

bool is_tensor(pybind11::handle value);

// In whose memory it lies: kHost, or the number of a GPU. TypeError for other devices.
inline constexpr int kHost = -1;
int tensor_device(pybind11::handle tensor, const char* op, const char* name);
// The handle of PyTorch's current stream on the tensor's GPU.
uint64_t current_stream(pybind11::handle tensor);
void synchronize_current_stream(pybind11::handle tensor);

// Errors: as Operands.
ops::ArrayView tensor_view(pybind11::handle tensor, const char* op, const char* name, bool written,
                           std::vector<pybind11::object>* keep);

// New tensors where `like` lies: of its shape, dtype and order of axes; or of another shape.
pybind11::object empty_like_tensor(pybind11::handle like);
pybind11::object empty_tensor(pybind11::handle like, std::span<const int64_t> shape, DType dtype,
                              bool is_complex);

}  // namespace adder::python
