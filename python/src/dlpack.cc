#include "dlpack.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "operand_types.h"
#include "ops/runtime.h"
#include "torch_tensor.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

constexpr int32_t kCpu = 1;  // kDLCPU

// The structures (dmlc/dlpack, include/dlpack/dlpack.h, version 0.8).
struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

enum : uint8_t { kInt = 0, kFloat = 2, kBfloat = 4, kComplex = 5 };

std::optional<ElementType> element_type(const DLTensor& t) {
  if (t.lanes != 1) return std::nullopt;
  if (t.code == kFloat && t.bits == 32) return ElementType{DType::kF32, false};
  if (t.code == kFloat && t.bits == 16) return ElementType{DType::kF16, false};
  if (t.code == kFloat && t.bits == 64) return ElementType{DType::kF64, false};
  if (t.code == kBfloat && t.bits == 16) return ElementType{DType::kBF16, false};
  if (t.code == kInt && t.bits == 32) return ElementType{DType::kI32, false};
  if (t.code == kInt && t.bits == 64) return ElementType{DType::kI64, false};
  if (t.code == kComplex && t.bits == 64) return ElementType{DType::kF32, true};
  if (t.code == kComplex && t.bits == 128) return ElementType{DType::kF64, true};
  return std::nullopt;
}

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

// What a capsule needs for as long as somebody has it.
struct Exported {
  DLManagedTensor managed;
  std::array<int64_t, ArrayView::kMaxRank> shape, strides;
  std::shared_ptr<const Buffer> memory;
};

const DLTensor& tensor_of(const py::object& capsule, const char* op, const char* name) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0)
    wrong_type(op, name, "__dlpack__() to return a capsule 'dltensor' that nobody has used yet",
               std::string(py::repr(capsule)));
  return *static_cast<const DLTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
}

// Shape and strides in bytes. Whatever is computed from them later fits 64 bits: no axis reaches
// farther than 2^56 bytes.
void set_axes(ArrayView* view, const DLTensor& t, const char* op, const char* name) {
  constexpr int64_t kFar = int64_t{1} << 56;
  ADDER_CHECK(view->rank == 0 || t.shape != nullptr, "{}: {}: expected a shape, got none", op,
              name);
  int64_t row_major = view->item_bytes();
  for (int axis = view->rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    const int64_t size = t.shape[i];
    ADDER_CHECK(size >= 0, "{}: {}: expected sizes from 0 on, got {} on axis {}", op, name, size,
                axis);
    int64_t stride = row_major, reach = 0;
    bool far = t.strides && __builtin_mul_overflow(t.strides[i], view->item_bytes(), &stride);
    far = far || __builtin_mul_overflow(size, stride, &reach) || reach >= kFar || reach <= -kFar;
    ADDER_CHECK(!far, "{}: {}: expected less than 2^56 bytes, got size {} on axis {}", op, name,
                size, axis);
    view->shape[i] = size;
    view->stride[i] = stride;
    if (size > 0) row_major = t.strides ? row_major : reach;
  }
}

}  // namespace

int dlpack_device(py::handle value, const char* op, const char* name) {
  if (!py::hasattr(value, "__dlpack_device__")) return kHost;
  const py::object device = value.attr("__dlpack_device__")();
  int type = 0, index = 0;
  try {
    const auto pair = device.cast<std::pair<py::object, py::object>>();
    // The type may be an enumeration.
    type = py::int_(pair.first).cast<int>();
    index = py::int_(pair.second).cast<int>();
  } catch (const std::exception&) {  // of a cast, or Python's
    wrong_type(op, name, "__dlpack_device__() to return (type, number)",
               std::string(py::repr(device)));
  }
  if (type == kCpu) return kHost;
  if (type == kDlpackCuda && index >= 0 && ops::has_devices()) return index;
  wrong_type(op, name,
             ops::has_devices()    ? "memory of the CPU or of a CUDA device"
             : type == kDlpackCuda ? "memory of the CPU, as this build has no CUDA backend"
                                   : "memory of the CPU",
             fmt::format("DLPack device {}", type));
}

ArrayView dlpack_view(py::handle value, int device, std::optional<int64_t> stream, const char* op,
                      const char* name, std::vector<py::object>* keep) {
  // A capsule that is not consumed frees the exporter's tensor when it goes away itself.
  const py::object exporter = value.attr("__dlpack__");
  keep->push_back(stream ? exporter(py::arg("stream") = *stream) : exporter());
  const DLTensor& t = tensor_of(keep->back(), op, name);
  if (t.device_type != (device == kHost ? kCpu : kDlpackCuda) ||
      (device != kHost && t.device_id != device))
    wrong_type(op, name,
               device == kHost ? "memory of the CPU"
                               : fmt::format("memory of device ({}, {})", kDlpackCuda, device),
               fmt::format("DLPack device {}", t.device_type));
  ArrayView view;
  set_rank(&view, t.ndim, op, name);
  const std::optional<ElementType> type = element_type(t);
  if (!type)
    wrong_type(op, name, kDTypes, fmt::format("DLPack type {} of {} bits", t.code, t.bits));
  view.dtype = type->dtype;
  view.is_complex = type->is_complex;
  set_axes(&view, t, op, name);
  view.data = static_cast<std::byte*>(t.data);
  ADDER_CHECK(view.data != nullptr || view.empty(),
              "{}: {}: expected an address of its elements, got none", op, name);
  if (view.data != nullptr) view.data += t.byte_offset;
  return view;
}

py::object dlpack_capsule(const ArrayView& view, int device, std::shared_ptr<const Buffer> memory) {
  auto exported = std::make_unique<Exported>();
  exported->memory = std::move(memory);
  exported->shape = view.shape;
  for (size_t axis = 0; axis < static_cast<size_t>(view.rank); ++axis)
    exported->strides[axis] = view.stride[axis] / view.item_bytes();
  DLTensor& t = exported->managed.tensor;
  t.data = view.data;
  t.device_type = kDlpackCuda;
  t.device_id = device;
  t.ndim = view.rank;
  t.code = view.dtype == DType::kI32 || view.dtype == DType::kI64 ? kInt
           : view.is_complex                                      ? kComplex
           : view.dtype == DType::kBF16                           ? kBfloat
                                                                  : kFloat;
  t.bits = static_cast<uint8_t>(8 * view.item_bytes());
  t.lanes = 1;
  t.shape = exported->shape.data();
  t.strides = exported->strides.data();
  t.byte_offset = 0;
  exported->managed.context = exported.get();
  exported->managed.deleter = [](DLManagedTensor* m) { delete static_cast<Exported*>(m->context); };
  PyObject* capsule = PyCapsule_New(&exported->managed, "dltensor", [](PyObject* unused) {
    if (PyCapsule_IsValid(unused, "dltensor") == 0) return;  // whoever has taken it frees it
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(unused, "dltensor"));
    m->deleter(m);
  });
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(exported.release());
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace adder::python
