#include "torch_tensor.h"

#include <fmt/format.h>

#include <algorithm>

#include "operand_types.h"
#include "ops/runtime.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

// What is used of PyTorch. Made when the first tensor comes, and never destroyed: the interpreter
// may be gone by then.
struct Torch {
  py::object tensor_type, empty, empty_like, is_grad_enabled, strided, cuda;
  std::vector<std::pair<PyObject*, ElementType>> dtypes;
  py::str data_ptr{"data_ptr"}, shape{"shape"}, stride{"stride"}, dtype{"dtype"}, is_cpu{"is_cpu"},
      is_cuda{"is_cuda"}, device{"device"}, index{"index"}, requires_grad{"requires_grad"},
      is_conj{"is_conj"}, resolve_conj{"resolve_conj"}, is_neg{"is_neg"}, layout{"layout"},
      cpu{"cpu"};

  explicit Torch(const py::object& module)
      : tensor_type(module.attr("Tensor")),
        empty(module.attr("empty")),
        empty_like(module.attr("empty_like")),
        is_grad_enabled(module.attr("is_grad_enabled")),
        strided(module.attr("strided")),
        cuda(module.attr("cuda")) {
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

py::object stream_of(const Torch& torch, py::handle tensor) {
  return torch.cuda.attr("current_stream")(attribute(tensor, torch.device));
}

}  // namespace

bool is_tensor(py::handle value) {
  const Torch* torch = torch_if_imported();
  return torch != nullptr && PyObject_IsInstance(value.ptr(), torch->tensor_type.ptr()) == 1;
}

int tensor_device(py::handle tensor, const char* op, const char* name) {
  const Torch& torch = *torch_if_imported();
  if (attribute(tensor, torch.is_cpu).ptr() == Py_True) return kHost;
  const py::object device = attribute(tensor, torch.device);
  const bool on_gpu = attribute(tensor, torch.is_cuda).ptr() == Py_True;
  if (!on_gpu || !ops::has_devices())
    wrong_type(op, name,
               ops::has_devices() ? "a CPU or CUDA tensor"
               : on_gpu           ? "a CPU tensor, as this build has no CUDA backend"
                                  : "a CPU tensor",
               fmt::format("one on {}", std::string(py::str(device))));
  return attribute(device, torch.index).cast<int>();
}

uint64_t current_stream(py::handle tensor) {
  return stream_of(*torch_if_imported(), tensor).attr("cuda_stream").cast<uint64_t>();
}

void synchronize_current_stream(py::handle tensor) {
  stream_of(*torch_if_imported(), tensor).attr("synchronize")();
}

ArrayView tensor_view(py::handle tensor, const char* op, const char* name, bool written,
                      std::vector<py::object>* keep) {
  const Torch& torch = *torch_if_imported();
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

py::object empty_like_tensor(py::handle like) {
  return torch_if_imported()->empty_like(like);
}

py::object empty_tensor(py::handle like, std::span<const int64_t> shape, DType dtype,
                        bool is_complex) {
  const Torch& torch = *torch_if_imported();
  py::tuple dims(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) dims[axis] = shape[axis];
  const auto type = std::find_if(torch.dtypes.begin(), torch.dtypes.end(), [&](const auto& e) {
    return e.second.dtype == dtype && e.second.is_complex == is_complex;
  });
  // Whatever the default device is.
  const bool on_host = attribute(like, torch.is_cpu).ptr() == Py_True;
  return torch.empty(
      dims, py::arg("dtype") = py::handle(type->first),
      py::arg("device") = on_host ? py::object(torch.cpu) : attribute(like, torch.device));
}

}  // namespace adder::python
