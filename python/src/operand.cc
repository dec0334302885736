#include "operand.h"

#include <fmt/format.h>
#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/error.h"
#include "device_array.h"
#include "dlpack.h"
#include "operand_types.h"
#include "ops/runtime.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

std::optional<ElementType> numpy_type(const py::dtype& dtype) {
  if (dtype.byteorder() == '>') return std::nullopt;
  switch (dtype.char_()) {
    case 'f':
      return ElementType{DType::kF32, false};
    case 'e':
      return ElementType{DType::kF16, false};
    case 'd':
      return ElementType{DType::kF64, false};
    case 'i':
      return ElementType{DType::kI32, false};
    case 'l':
    case 'q':
      return ElementType{DType::kI64, false};
    case 'F':
      return ElementType{DType::kF32, true};
    case 'D':
      return ElementType{DType::kF64, true};
    default:
      if (dtype.itemsize() == 2 && py::str(dtype.attr("name")).equal(py::str("bfloat16")))
        return ElementType{DType::kBF16, false};
      return std::nullopt;
  }
}

// NumPy makes the arrays: what pybind11 below 2.12 knows of dtypes is not so in NumPy 2. As with
// Torch, no static with an initializer: that may give the GIL away while other threads wait for it.
struct Numpy {
  py::object empty = py::module_::import("numpy").attr("empty");
  py::object empty_like = py::module_::import("numpy").attr("empty_like");
  py::object ndarray = py::module_::import("numpy").attr("ndarray");
  py::object masked_array = py::module_::import("numpy.ma").attr("MaskedArray");
};

const Numpy& numpy() {
  static const Numpy* made = nullptr;  // guarded by the GIL
  if (made == nullptr) made = new Numpy;
  return *made;
}

py::dtype numpy_dtype(DType dtype, bool is_complex) {
  switch (dtype) {
    case DType::kF16:
      return py::dtype("e");
    case DType::kBF16:
      return py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16"));
    case DType::kF64:
      return py::dtype(is_complex ? "D" : "d");
    case DType::kI32:
      return py::dtype("i4");
    case DType::kI64:
      return py::dtype("i8");
    default:
      return py::dtype(is_complex ? "F" : "f");
  }
}

ArrayView numpy_view(const py::array& array, const char* op, const char* name, bool written) {
  const auto* exact = reinterpret_cast<PyObject*>(Py_TYPE(array.ptr()));
  // Its memory is not all that it says; other subclasses are.
  if (exact != numpy().ndarray.ptr() && py::isinstance(array, numpy().masked_array))
    wrong_type(op, name, "an array without a mask", type_name(array));
  ArrayView view;
  set_rank(&view, array.ndim(), op, name);
  const std::optional<ElementType> type = numpy_type(array.dtype());
  if (!type) wrong_type(op, name, kDTypes, std::string(py::str(array.dtype())));
  ADDER_CHECK(!written || array.writeable(),
              "{}: {}: expected a writeable array, got a read-only one", op, name);
  view.dtype = type->dtype;
  view.is_complex = type->is_complex;
  view.data = static_cast<std::byte*>(const_cast<void*>(array.data()));
  std::copy_n(array.shape(), view.rank, view.shape.begin());
  std::copy_n(array.strides(), view.rank, view.stride.begin());
  return view;
}

}  // namespace

// Whatever comes first says where the call runs, and on which stream.
void Operands::settle(int device, py::handle value, const char* name) {
  const auto place_name = [](int at) {
    return at == kHost ? std::string("the CPU") : fmt::format("cuda:{}", at);
  };
  if (!first_) {
    device_ = device;
    if (device == kHost) return;
    const py::gil_scoped_release release;  // a GPU's first use takes a while
    place_.device = &ops::shared_device(device);
  } else if (device != device_) {
    wrong_type(op_, name,
               fmt::format("an array on {}, where {} is", place_name(device_), first_name_),
               fmt::format("one on {}", place_name(device)));
  }
  if (device == kHost) return;
  if (!is_tensor(value)) {
    place_.wait = true;  // for the results: its library does not know of this stream
  } else if (!first_) {
    place_.wait = false;
  }
}

ArrayView Operands::describe(py::handle value, const char* name, bool written) {
  if (py::isinstance<py::array>(value)) {
    settle(kHost, value, name);
    return numpy_view(py::reinterpret_borrow<py::array>(value), op_, name, written);
  }
  if (is_tensor(value)) {
    const int device = tensor_device(value, op_, name);
    settle(device, value, name);
    // What PyTorch has enqueued is done before this call's work: in order with it, or waited for.
    if (device != kHost && !first_) place_.stream = current_stream(value);
    if (device != kHost && !place_.stream) synchronize_current_stream(value);
    return tensor_view(value, op_, name, written, &keep_);
  }
  if (PyType_Check(value.ptr()) == 0 && py::hasattr(value, "__dlpack__")) {
    const int device = dlpack_device(value, op_, name);
    if (device != kHost || !written) {
      settle(device, value, name);
      std::optional<int64_t> stream;
      if (device != kHost) {
        // 0 is the default stream's handle, which DLPack calls 1.
        const auto borrowed = static_cast<int64_t>(place_.stream.value_or(0));
        stream = !place_.stream ? place_.device->own_stream() : borrowed == 0 ? 1 : borrowed;
      }
      return dlpack_view(value, device, stream, op_, name, &keep_);
    }
  }
  wrong_type(op_, name,
             written ? "a NumPy array or a PyTorch tensor"
                     : "a NumPy array, a PyTorch tensor or an object with __dlpack__",
             type_name(value));
}

ArrayView Operands::view_of(py::handle value, const char* name, bool written) {
  const ArrayView view = describe(value, name, written);
  if (device_ != kHost && !view.empty()) {
    const auto unit = dtype_size(view.dtype);
    ADDER_CHECK(reinterpret_cast<uintptr_t>(view.data) % unit == 0,
                "{}: {}: expected elements at multiples of {} bytes, got address {}", op_, name,
                unit, static_cast<const void*>(view.data));
  }
  if (!first_) {
    first_ = value;
    first_name_ = name;
    first_view_ = view;
  }
  return view;
}

ArrayView Operands::in(py::handle value, const char* name) {
  return view_of(value, name, false);
}

ArrayView Operands::optional(py::handle value, const char* name) {
  return value.is_none() ? ArrayView() : view_of(value, name, false);
}

ArrayView Operands::in_out(py::handle value, const char* name) {
  return view_of(value, name, true);
}

ArrayView Operands::optional_in_out(py::handle value, const char* name) {
  return value.is_none() ? ArrayView() : view_of(value, name, true);
}

py::object Operands::make(std::span<const int64_t> shape, DType dtype, bool is_complex,
                          ArrayView* view) {
  if (is_tensor(first_)) {
    py::object made = empty_tensor(first_, shape, dtype, is_complex);
    *view = tensor_view(made, op_, "out", true, &keep_);
    return made;
  }
  if (device_ != kHost) return make_device_array(first_, device_, shape, dtype, is_complex, view);
  py::tuple dims(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) dims[axis] = shape[axis];
  py::array made = numpy().empty(dims, numpy_dtype(dtype, is_complex));
  *view = numpy_view(made, op_, "out", true);
  return made;
}

py::object Operands::make_like(py::handle model, ArrayView* view) {
  if (is_tensor(first_) && is_tensor(model)) {
    py::object made = empty_like_tensor(model);
    *view = tensor_view(made, op_, "out", true, &keep_);
    return made;
  }
  if (py::isinstance<py::array>(first_) && py::isinstance<py::array>(model)) {
    py::array made = numpy().empty_like(model, py::arg("subok") = false);
    *view = numpy_view(made, op_, "out", true);
    return made;
  }
  const ArrayView like = view_of(model, "out", false);
  const std::span<const int64_t> shape(like.shape.data(), static_cast<size_t>(like.rank));
  return make(shape, like.dtype, like.is_complex, view);
}

py::object Operands::make_same(std::initializer_list<int64_t> shape, ArrayView* view) {
  return make({shape.begin(), shape.size()}, first_view_.dtype, first_view_.is_complex, view);
}

py::object Operands::make_float(std::initializer_list<int64_t> shape, bool is_complex,
                                ArrayView* view) {
  return make({shape.begin(), shape.size()}, DType::kF32, is_complex, view);
}

}  // namespace adder::python
