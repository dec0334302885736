#include "device_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bindings.h"
#include "dlpack.h"
#include "ops/runtime.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

std::string dtype_of(const DeviceArray& a) {
  return std::string(user_dtype_name(a.view.dtype, a.view.is_complex));
}

py::tuple shape_of(const DeviceArray& a) {
  py::tuple shape(static_cast<size_t>(a.view.rank));
  for (int axis = 0; axis < a.view.rank; ++axis)
    shape[static_cast<size_t>(axis)] = a.view.dim(axis);
  return shape;
}

bool is_cupy(py::handle value) {
  const py::object module = py::type::of(value).attr("__module__");
  return py::isinstance<py::str>(module) && module.cast<std::string>().starts_with("cupy");
}

}  // namespace

py::object make_device_array(py::handle like, int device, std::span<const int64_t> shape,
                             DType dtype, bool is_complex, ArrayView* view) {
  ArrayView made(nullptr, dtype, {});
  made.is_complex = is_complex;
  made.rank = static_cast<int>(shape.size());
  int64_t bytes = made.item_bytes();
  for (size_t axis = shape.size(); axis-- > 0;) {
    made.shape[axis] = shape[axis];
    made.stride[axis] = bytes;
    bytes *= shape[axis];
  }
  auto memory = std::make_shared<const Buffer>(
      ops::shared_device(device).allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1))));
  made.data = static_cast<std::byte*>(memory->data());
  *view = made;
  py::object array = py::cast(DeviceArray{made, device, std::move(memory)});
  if (!is_cupy(like)) return array;
  return py::module_::import("cupy").attr("from_dlpack")(array);
}

void bind_device_array(py::module_& module) {
  py::class_<DeviceArray>(module, "DeviceArray")
      .def_property_readonly("shape", &shape_of)
      .def_property_readonly("dtype", &dtype_of)
      .def("__dlpack_device__",
           [](const DeviceArray& a) { return py::make_tuple(kDlpackCuda, a.device); })
      // There is nothing to wait for, whatever the stream.
      .def(
          "__dlpack__",
          [](const DeviceArray& a, const py::object& /*stream*/) {
            return dlpack_capsule(a.view, a.device, a.memory);
          },
          py::arg("stream") = py::none())
      .def("__repr__", [](const DeviceArray& a) {
        return fmt::format("<adder.ops.DeviceArray {} on cuda:{}>", a.view.describe(), a.device);
      });
}

}  // namespace adder::python
