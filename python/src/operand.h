// NumPy arrays, PyTorch tensors and whatever else speaks DLPack, as views without a copy.
#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <span>
#include <vector>

#include "ops/dispatch.h"
#include "torch_tensor.h"

namespace adder::python {

// The operands of one call, all in host memory or all in that of one GPU. Views are valid as long
// as this object, which keeps what they need. Results are of the kind of the first operand: NumPy
// arrays, PyTorch or CuPy tensors, or DeviceArray for others on a GPU. PyTorch is never imported: a
// tensor can only come from one that is there already.
//
// TypeError: not an array, or of a dtype or on a device that no operation takes. RuntimeError: a
// tensor that requires a gradient where gradients are recorded. ValueError: read-only where it is
// written.
class Operands {
 public:
  explicit Operands(const char* op) : op_(op) {}

  ops::ArrayView in(pybind11::handle value, const char* name);
  ops::ArrayView optional(pybind11::handle value, const char* name);  // None: not given
  ops::ArrayView in_out(pybind11::handle value, const char* name);
  ops::ArrayView optional_in_out(pybind11::handle value, const char* name);

  // New arrays: of the shape, dtype and order of the axes in memory of `model`; of another shape
  // with the dtype of the first operand; of float32 or complex64. *view is where they lie.
  pybind11::object make_like(pybind11::handle model, ops::ArrayView* view);
  pybind11::object make_same(std::initializer_list<int64_t> shape, ops::ArrayView* view);
  pybind11::object make_float(std::initializer_list<int64_t> shape, bool is_complex,
                              ops::ArrayView* view);
  pybind11::object make_float_like(const ops::ArrayView& shape, ops::ArrayView* view) {
    return make({shape.shape.data(), static_cast<size_t>(shape.rank)}, DType::kF32, false, view);
  }

  // Runs an operation where its operands lie, without the GIL: host(args) in host memory.
  template <typename Args, typename Host>
  void run(Args& args, const Host& host) {
    const pybind11::gil_scoped_release release;
    ops::run(place_, op_, args, host);
  }

 private:
  ops::ArrayView view_of(pybind11::handle value, const char* name, bool written);
  ops::ArrayView describe(pybind11::handle value, const char* name, bool written);
  void settle(int device, pybind11::handle value, const char* name);
  pybind11::object make(std::span<const int64_t> shape, DType dtype, bool is_complex,
                        ops::ArrayView* view);

  const char* op_;
  pybind11::handle first_;
  const char* first_name_ = nullptr;
  int device_ = kHost;  // of all of them
  ops::Place place_;
  ops::ArrayView first_view_;
  std::vector<pybind11::object> keep_;
};

}  // namespace adder::python
