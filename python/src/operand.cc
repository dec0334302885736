#include "operand.h"

#include <fmt/format.h>
#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/error.h"
#include "dlpack.h"
#include "operand_types.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

// What is used of PyTorch. Made when the first tensor comes, and never destroyed: the interpreter
// may be gone by then.
struct Torch {
  py::object tensor_type, empty, empty_like, is_grad_enabled, strided;
  std::vector<std::pair<PyObject*, ElementType>> dtypes;
  py::str data_ptr{"data_ptr"}, shape{"shape"}, stride{"stride"}, dtype{"dtype"}, is_cpu{"is_cpu"},
      device{"device"}, requires_grad{"requires_grad"}, is_conj{"is_conj"},
      resolve_conj{"resolve_conj"}, is_neg{"is_neg"}, layout{"layout"}, cpu{"cpu"};

  explicit Torch(const py::object& module)
      : tensor_type(module.attr("Tensor")),
        empty(module.attr("empty")),
        empty_like(module.attr("empty_like")),
        is_grad_enabled(module.attr("is_grad_enabled")),
        strided(module.attr("strided")) {
    const auto add = [&](const char* name, DType type, bool is_complex = false) {
      dtypes.emplace_back(py::object(module.attr(name)).release().ptr(),
                          ElementType{type, is_complex});
    };
    add("float32", DType::kF32);
    add("bfloat16", DType::kBF16);
    add("float16", DType::kF16);
    add("float64", DType::kF64);
    add("int64", DType::kI64);
    add("int32", DType::kI32);
    add("complex64", DType::kF32, true);
    add("complex128", DType::kF64, true);
  }
};

const Torch* torch_if_imported() {
  static const Torch* torch = nullptr;  // guarded by the GIL
  if (torch == nullptr) {
    const py::dict modules = py::module_::import("sys").attr("modules");
    if (!modules.contains("torch") || !py::hasattr(modules["torch"], "Tensor")) return nullptr;
    torch = new Torch(modules["torch"]);
  }
  return torch;
}

bool is_tensor(py::handle value, const Torch* torch) {
  return torch != nullptr && PyObject_IsInstance(value.ptr(), torch->tensor_type.ptr()) == 1;
}

py::object checked(PyObject* result) {
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

py::object attribute(py::handle value, const py::str& name) {
  return checked(PyObject_GetAttr(value.ptr(), name.ptr()));
}

py::object call_method(py::handle value, const py::str& name) {
  return checked(PyObject_CallMethodNoArgs(value.ptr(), name.ptr()));
}

const char* type_name(py::handle value) {
  return value.is_none() ? "None" : Py_TYPE(value.ptr())->tp_name;
}

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

ArrayView tensor_view(const Torch& torch, py::handle tensor, const char* op, const char* name,
                      bool written, std::vector<py::object>* keep) {
  if (attribute(tensor, torch.is_cpu).ptr() != Py_True)
    wrong_type(op, name, "a CPU tensor",
               fmt::format("one on {}", std::string(py::str(attribute(tensor, torch.device)))));
  if (attribute(tensor, torch.requires_grad).ptr() == Py_True &&
      torch.is_grad_enabled().ptr() == Py_True)
    throw std::runtime_error(
        fmt::format("{}: {} requires a gradient, but adder has no backward pass: call it under "
                    "torch.no_grad(), or with {}.detach()",
                    op, name, name));
  if (const py::object layout = attribute(tensor, torch.layout); !layout.is(torch.strided))
    wrong_type(op, name, "a strided tensor", std::string(py::str(layout)));
  const py::object dtype = attribute(tensor, torch.dtype);
  const auto type = std::find_if(torch.dtypes.begin(), torch.dtypes.end(),
                                 [&](const auto& entry) { return entry.first == dtype.ptr(); });
  if (type == torch.dtypes.end()) wrong_type(op, name, kDTypes, std::string(py::str(dtype)));
  py::object resolved = py::reinterpret_borrow<py::object>(tensor);
  if (type->second.is_complex && call_method(tensor, torch.is_conj).ptr() == Py_True) {
    // A conjugate that is only marked so is the one tensor whose memory does not hold its values.
    if (written) wrong_type(op, name, "a tensor without a pending conjugation", "one with");
    resolved = call_method(tensor, torch.resolve_conj);
    keep->push_back(resolved);
  }
  if (call_method(resolved, torch.is_neg).ptr() == Py_True)
    wrong_type(op, name, "a tensor without a pending negation", "one with");
  ArrayView view;
  view.dtype = type->second.dtype;
  view.is_complex = type->second.is_complex;
  const py::object shape = attribute(resolved, torch.shape);
  const py::object stride = call_method(resolved, torch.stride);
  // A subclass may say anything.
  if (!PyTuple_Check(shape.ptr()) || !PyTuple_Check(stride.ptr()) ||
      PyTuple_GET_SIZE(shape.ptr()) != PyTuple_GET_SIZE(stride.ptr()))
    wrong_type(op, name, "a tensor with a shape and as many strides",
               fmt::format("a {} of another kind", type_name(tensor)));
  set_rank(&view, PyTuple_GET_SIZE(shape.ptr()), op, name);
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    view.shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.ptr(), axis));
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    view.stride[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride.ptr(), axis)) * view.item_bytes();
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  view.data =
      static_cast<std::byte*>(PyLong_AsVoidPtr(call_method(resolved, torch.data_ptr).ptr()));
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (view.data == nullptr && !view.empty())
    wrong_type(op, name, "a tensor with memory", fmt::format("a {} without", type_name(tensor)));
  return view;
}

}  // namespace

ArrayView Operands::view_of(py::handle value, const char* name, bool written) {
  ArrayView view;
  if (py::isinstance<py::array>(value)) {
    view = numpy_view(py::reinterpret_borrow<py::array>(value), op_, name, written);
  } else if (const Torch* torch = torch_if_imported(); is_tensor(value, torch)) {
    view = tensor_view(*torch, value, op_, name, written, &keep_);
  } else if (!written && PyType_Check(value.ptr()) == 0 && py::hasattr(value, "__dlpack__")) {
    view = dlpack_view(value, op_, name, &keep_);
  } else {
    wrong_type(op_, name,
               written ? "a NumPy array or a PyTorch tensor"
                       : "a NumPy array, a PyTorch tensor or an object with __dlpack__",
               type_name(value));
  }
  if (!first_) {
    first_ = value;
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
  const Torch* torch = torch_if_imported();
  py::tuple dims(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) dims[axis] = shape[axis];
  if (is_tensor(first_, torch)) {
    const auto type = std::find_if(torch->dtypes.begin(), torch->dtypes.end(), [&](const auto& e) {
      return e.second.dtype == dtype && e.second.is_complex == is_complex;
    });
    // Whatever the default device is.
    py::object made = torch->empty(dims, py::arg("dtype") = py::handle(type->first),
                                   py::arg("device") = torch->cpu);
    *view = tensor_view(*torch, made, op_, "out", true, &keep_);
    return made;
  }
  py::array made = numpy().empty(dims, numpy_dtype(dtype, is_complex));
  *view = numpy_view(made, op_, "out", true);
  return made;
}

py::object Operands::make_like(py::handle model, ArrayView* view) {
  const Torch* torch = torch_if_imported();
  if (is_tensor(first_, torch) && is_tensor(model, torch)) {
    py::object made = torch->empty_like(model);
    *view = tensor_view(*torch, made, op_, "out", true, &keep_);
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
