// adder._core with an emulated GPU, and what the tests need of it: arrays in its memory.
#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>

#include "../../src/bindings.h"
#include "../../src/device_array.h"
#include "ops/runtime.h"

namespace adder::python {
namespace {

namespace py = pybind11;

struct NamedType {
  const char* name;
  DType dtype;
  bool is_complex;
};
// NumPy has no bfloat16; its bits are uint16 on this side.
constexpr NamedType kTypes[] = {{"float32", DType::kF32, false},   {"float16", DType::kF16, false},
                                {"float64", DType::kF64, false},   {"int32", DType::kI32, false},
                                {"int64", DType::kI64, false},     {"complex64", DType::kF32, true},
                                {"complex128", DType::kF64, true}, {"uint16", DType::kBF16, false}};

// The array as it lies, gaps and all, `shift` bytes further from a boundary.
DeviceArray upload(const py::array& array, size_t shift) {
  const auto name = py::str(array.dtype().attr("name")).cast<std::string>();
  const auto* type = std::ranges::find(kTypes, name, &NamedType::name);
  DeviceArray result;
  result.view.dtype = type->dtype;
  result.view.is_complex = type->is_complex;
  result.view.given = true;
  result.view.rank = static_cast<int>(array.ndim());
  int64_t low = 0, high = array.itemsize();
  for (int axis = 0; axis < result.view.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    result.view.shape[i] = array.shape(axis);
    result.view.stride[i] = array.strides(axis);
    const int64_t reach = std::max<int64_t>(array.shape(axis) - 1, 0) * array.strides(axis);
    (reach < 0 ? low : high) += reach;
  }
  ArrayDevice& device = ops::shared_device(0);
  const size_t bytes = array.size() == 0 ? 0 : static_cast<size_t>(high - low);
  auto memory = std::make_shared<const Buffer>(device.allocate(bytes + shift));
  auto* begin = static_cast<std::byte*>(memory->data()) + shift;
  device.begin(std::nullopt);
  device.upload(begin, static_cast<const std::byte*>(array.data()) + low, bytes);
  device.end(true);
  result.view.data = begin - low;
  result.memory = std::move(memory);
  return result;
}

py::array download(const DeviceArray& array) {
  const auto* type = std::ranges::find_if(kTypes, [&](const NamedType& t) {
    return t.dtype == array.view.dtype && t.is_complex == array.view.is_complex;
  });
  const auto rank = static_cast<size_t>(array.view.rank);
  std::vector<py::ssize_t> shape(array.view.shape.begin(), array.view.shape.begin() + rank);
  py::array result(py::dtype(type->name), shape);
  ArrayDevice& device = ops::shared_device(0);
  ArrayView packed(nullptr, array.view.dtype, {});
  packed.is_complex = type->is_complex;
  packed.rank = array.view.rank;
  packed.shape = array.view.shape;
  std::copy_n(result.strides(), rank, packed.stride.begin());
  device.begin(std::nullopt);
  packed.data = device.temporary(static_cast<size_t>(result.nbytes()));
  device.copy(array.view, packed);
  device.download(result.mutable_data(), packed.data, static_cast<size_t>(result.nbytes()));
  device.end(true);
  return result;
}

// Its first elements, in the same memory.
DeviceArray slice(const DeviceArray& array, const std::vector<int64_t>& shape) {
  DeviceArray result = array;
  result.view.rank = static_cast<int>(shape.size());
  int64_t bytes = array.view.item_bytes();
  for (size_t axis = shape.size(); axis-- > 0;) {
    result.view.shape[axis] = shape[axis];
    result.view.stride[axis] = bytes;
    bytes *= shape[axis];
  }
  return result;
}

}  // namespace
}  // namespace adder::python

PYBIND11_MODULE(_core, module) {
  adder::python::bind_all(module);
  module.def("emulated_upload", &adder::python::upload, pybind11::arg("array"),
             pybind11::arg("shift") = 0);
  module.def("emulated_slice", &adder::python::slice);
  module.def("emulated_address", [](const adder::python::DeviceArray& array) {
    return reinterpret_cast<uintptr_t>(array.view.data);
  });
  module.def("emulated_download", &adder::python::download);
}
