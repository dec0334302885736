// Arrays that share memory with what a call writes.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "ops/array_view.h"

namespace adder::ops {

// True unless the memory from the first to the last element of one lies outside that of the other.
bool may_overlap(const ArrayView& a, const ArrayView& b);

// How a copy of an array lies that is as small as can be: axes of stride 0 keep it.
struct CompactCopy {
  explicit CompactCopy(const ArrayView& array);  // Error(kIo) if no memory could hold it

  ArrayView from, to;      // what is to be copied, and where, once `to` has an address
  size_t bytes;            // of the copy
  ArrayView view() const;  // of the whole array in the copy

 private:
  std::array<int64_t, ArrayView::kMaxRank> shape_;
};

// Copies of operands in host memory, for as long as it lives.
class Detached {
 public:
  // Every one of `inputs` that may overlap `written`, which a call changes while it still reads,
  // becomes a view of a copy. Throws Error(kIo) without memory.
  void detach(const ArrayView& written, std::span<ArrayView* const> inputs);
  // The array becomes a view of a copy.
  void copy(ArrayView* array);

 private:
  std::vector<Buffer> copies_;
};

}  // namespace adder::ops
