#include "ops/overlap.h"

#include <algorithm>

#include "core/error.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

struct Extent {
  const std::byte *first, *end;
};

Extent extent(const ArrayView& a) {
  int64_t low = 0, high = a.item_bytes();
  for (int axis = 0; axis < a.rank; ++axis) {
    const int64_t reach = (a.dim(axis) - 1) * a.step(axis);
    low += std::min<int64_t>(reach, 0);
    high += std::max<int64_t>(reach, 0);
  }
  return {a.data + low, a.data + high};
}

}  // namespace

bool may_overlap(const ArrayView& a, const ArrayView& b) {
  if (a.empty() || b.empty()) return false;
  const Extent x = extent(a), y = extent(b);
  return x.first < y.end && y.first < x.end;
}

CompactCopy::CompactCopy(const ArrayView& array) : from(array), to(array), shape_(array.shape) {
  int64_t size = from.item_bytes();
  bool too_large = false;
  for (int axis = from.rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    if (from.stride[i] == 0) from.shape[i] = 1;  // one entry of an expanded axis is all of it
    to.stride[i] = from.stride[i] == 0 ? 0 : size;
    too_large |= __builtin_mul_overflow(size, from.shape[i], &size);
  }
  if (too_large) fail(ErrorCode::kIo, "no memory for a copy of {}", array.describe());
  to.shape = from.shape;
  bytes = static_cast<size_t>(size);
}

ArrayView CompactCopy::view() const {
  ArrayView whole = to;
  whole.shape = shape_;
  return whole;
}

void Detached::copy(ArrayView* array) {
  CompactCopy compact(*array);
  copies_.push_back(allocate_host(compact.bytes));
  compact.to.data = static_cast<std::byte*>(copies_.back().data());
  copy_exact(compact.from, compact.to);
  *array = compact.view();
}

void Detached::detach(const ArrayView& written, std::span<ArrayView* const> inputs) {
  for (ArrayView* input : inputs)
    if (may_overlap(written, *input)) copy(input);
}

}  // namespace adder::ops
