#include "dlpack.h"

#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "operand_types.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using ops::ArrayView;

// The structure (dmlc/dlpack, include/dlpack/dlpack.h, version 0.8), as far as it is read.
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

std::optional<ElementType> element_type(const DLTensor& t) {
  enum : uint8_t { kInt = 0, kFloat = 2, kBfloat = 4, kComplex = 5 };
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

ArrayView dlpack_view(py::handle value, const char* op, const char* name,
                      std::vector<py::object>* keep) {
  // A capsule that is not consumed frees the exporter's tensor when it goes away itself.
  keep->push_back(value.attr("__dlpack__")());
  const DLTensor& t = tensor_of(keep->back(), op, name);
  constexpr int32_t kCpu = 1;
  if (t.device_type != kCpu)
    wrong_type(op, name, "memory of the CPU", fmt::format("DLPack device {}", t.device_type));
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

}  // namespace adder::python
