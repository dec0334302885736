#include "ops/overlap.h"

#include <algorithm>

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

void Detached::detach(const ArrayView& written, std::initializer_list<ArrayView*> inputs) {
  for (ArrayView* input : inputs) {
    if (!may_overlap(written, *input)) continue;
    // One entry of an expanded axis is all of it.
    ArrayView from = *input, to = *input;
    int64_t bytes = from.item_bytes();
    for (int axis = from.rank - 1; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      if (from.stride[i] == 0) from.shape[i] = 1;
      to.stride[i] = from.stride[i] == 0 ? 0 : bytes;
      bytes *= from.shape[i];
    }
    copies_.push_back(allocate_host(static_cast<size_t>(bytes)));
    to.data = static_cast<std::byte*>(copies_.back().data());
    *input = to;
    to.shape = from.shape;
    copy_exact(from, to);
  }
}

}  // namespace adder::ops
