// Arrays that share memory with what a call writes.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/buffer.h"
#include "ops/array_view.h"

namespace adder::ops {

// True unless the memory from the first to the last element of one lies outside that of the other.
bool may_overlap(const ArrayView& a, const ArrayView& b);

// Copies of operands, for as long as it lives.
class Detached {
 public:
  // Every one of `inputs` that may overlap `written`, which a call changes while it still reads,
  // becomes a view of a copy. Axes of stride 0 keep it. Throws Error(kIo) without memory.
  void detach(const ArrayView& written, std::initializer_list<ArrayView*> inputs);

 private:
  std::vector<Buffer> copies_;
};

}  // namespace adder::ops
