#include "ops/device_call.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/dispatch.h"

namespace adder::ops {
namespace {

bool is_integer(const ArrayView& a) {
  return (a.dtype == DType::kI32 || a.dtype == DType::kI64) && !a.is_complex;
}

// Others are refused later, without being read.
bool is_index(const ArrayView& a) {
  return !a.empty() && is_integer(a);
}

}  // namespace

void detach(const OperandList& list, Detached* copies) {
  for (ArrayView* index : list.index)
    if (is_index(*index)) copies->copy(index);
  for (const ArrayView* written : list.updated) copies->detach(*written, list.read);
}

DeviceCall::DeviceCall(const Place& place, std::string_view op) : place_(place), op_(op) {
  device().begin(place.stream);
}

DeviceCall::~DeviceCall() {
  if (ended_) return;
  try {
    device().end(true);
  } catch (const Error&) {  // the first error is the cause
  }
}

void DeviceCall::finish() {
  ended_ = true;
  device().end(place_.wait);
}

void DeviceCall::detach(const OperandList& list) {
  for (ArrayView* index : list.index)
    if (is_index(*index)) *index = to_host(*index);
  for (const ArrayView* written : list.updated) {
    for (ArrayView* input : list.read) {
      if (!may_overlap(*written, *input)) continue;
      CompactCopy compact(*input);
      compact.to.data = device().temporary(compact.bytes);
      device().copy(compact.from, compact.to);
      *input = compact.view();
    }
  }
}

ArrayView DeviceCall::to_host(const ArrayView& array) {
  if (array.empty()) return array;
  CompactCopy compact(array);
  compact.to.data = device().temporary(compact.bytes);
  device().copy(compact.from, compact.to);
  host_.push_back(allocate_host(compact.bytes));
  device().download(host_.back().data(), compact.to.data, compact.bytes);
  compact.to.data = static_cast<std::byte*>(host_.back().data());
  return compact.view();
}

void DeviceCall::through_host(const OperandList& list, const std::function<void()>& body) {
  struct Written {
    ArrayView* operand;
    ArrayView array;  // the user's
  };
  std::vector<Written> written;
  for (ArrayView* operand : list.read) *operand = to_host(*operand);
  for (ArrayView* operand : list.updated) {
    written.push_back({operand, *operand});
    *operand = to_host(*operand);
  }
  for (ArrayView* operand : list.made) {
    written.push_back({operand, *operand});
    if (operand->empty()) continue;
    CompactCopy compact(*operand);
    host_.push_back(allocate_host(compact.bytes));
    compact.to.data = static_cast<std::byte*>(host_.back().data());
    *operand = compact.view();
  }
  body();
  for (const Written& w : written) {
    if (w.array.empty()) continue;
    CompactCopy compact(w.array);
    compact.to.data = device().temporary(compact.bytes);
    device().upload(compact.to.data, w.operand->data, compact.bytes);
    device().copy(compact.to, compact.from);
  }
}

ArrayView DeviceCall::temporary(std::initializer_list<int64_t> shape) {
  ArrayView view(nullptr, DType::kF32, shape);
  view.data = device().temporary(static_cast<size_t>(view.size()) * sizeof(float));
  return view;
}

Tensor DeviceCall::packed(const ArrayView& array, float scale) {
  if (!array) return {};
  ArrayView to(nullptr, DType::kF32, {});
  Tensor tensor;
  tensor.rank = to.rank = array.rank;
  int64_t stride = 1;
  for (int axis = array.rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    tensor.shape[i] = to.shape[i] = array.shape[i];
    tensor.stride[i] = stride;
    to.stride[i] = stride * static_cast<int64_t>(sizeof(float));
    stride *= array.shape[i];
  }
  tensor.data = to.data = device().temporary(static_cast<size_t>(stride) * sizeof(float));
  device().copy(array, to, scale);
  return tensor;
}

bool PackedRows::direct(const ArrayView& a) const {
  constexpr int64_t kItem = sizeof(float);
  if (a.dtype != DType::kF32 || a.is_complex || a.data == nullptr) return false;
  const int last = a.rank - 1;
  if (a.dim(last) > 1 && a.step(last) != kItem) return false;
  for (int axis = 0; axis < last; ++axis)  // backwards, or expanded
    if (a.step(axis) < 0 || (a.step(axis) == 0 && a.dim(axis) > 1)) return false;
  return a.dim(0) == 1 || a.dim(1) == 1 || a.step(0) == a.dim(1) * a.step(1);
}

// Elements of users' arrays are aligned, so strides are whole floats.
Tensor PackedRows::rows(const ArrayView& a) const {
  Tensor t;
  t.data = a.data;
  t.rank = a.rank - 1;
  t.shape[0] = a.dim(0) * a.dim(1);
  t.stride[0] = (a.dim(1) == 1 ? a.step(0) : a.step(1)) / static_cast<int64_t>(sizeof(float));
  for (int axis = 2; axis < a.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    t.shape[i - 1] = a.shape[i];
    t.stride[i - 1] = a.stride[i] / static_cast<int64_t>(sizeof(float));
  }
  t.stride[static_cast<size_t>(t.rank - 1)] = 1;
  return t;
}

int64_t device_rows(int64_t batch, int64_t seqlen, int64_t step_floats) {
  constexpr int64_t kFloats = int64_t{1} << 28, kMostSequences = 65535;  // of a grid
  constexpr int64_t kMostSteps = std::numeric_limits<int32_t>::max();
  if (seqlen > kMostSteps) return 0;
  const int64_t longest = std::max<int64_t>(seqlen, 1);
  const int64_t fit = std::max<int64_t>(kFloats / longest / std::max<int64_t>(step_floats, 1), 1);
  return std::min({batch, fit, kMostSequences, kMostSteps / longest});
}

RowBatch::RowBatch(int64_t rows, int64_t seqlen) {
  for (int64_t row = 0; row <= rows; ++row) start_.push_back(static_cast<int32_t>(row * seqlen));
  for (int64_t row = 0; row < rows; ++row) slot_.push_back(static_cast<int32_t>(row));
}

Tensor PackedRows::write(const ArrayView& array) {
  written_ = memory_ = array;
  if (direct(array)) return rows(array);
  memory_.dtype = DType::kF32;
  int64_t bytes = sizeof(float);
  for (int axis = array.rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    memory_.stride[i] = bytes;
    bytes *= array.shape[i];
  }
  if (own_ == nullptr) own_ = call_.device().temporary(static_cast<size_t>(bytes));
  memory_.data = own_;
  return rows(memory_);
}

Tensor PackedRows::read(const ArrayView& array) {
  if (!array) return {};
  const Tensor t = write(array);
  if (t.data != array.data) call_.device().copy(array, memory_);
  return t;
}

void PackedRows::flush() const {
  if (memory_.data != written_.data) call_.device().copy(memory_, written_);
}

}  // namespace adder::ops
