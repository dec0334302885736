// What the buffers of the backend hold: instead of bytes, a list of values that were written.
//
// A buffer is a range of addresses that nobody may touch, so that handles can be cut and compared
// as those of other backends; what lies there is found by the address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/xla/executor.h"
#include "backends/xla/tape.h"
#include "core/buffer.h"
#include "core/tensor.h"

namespace adder::xla {

// The elements of one tensor within a buffer. Axes that lie back to back are merged, but for the
// first one, whose entries are the rows of a matrix.
struct View {
  Element element = Element::kF32;
  int64_t offset = 0;  // in elements
  int64_t rows = 1;
  int64_t row_stride = 0;  // 0 where there is one row
  int64_t cols = 1;        // the elements of a row
  // The axes of a row, the outermost first; no entry is 1 wide. More than one: a row has gaps.
  int inner_rank = 0;
  std::array<int64_t, Tensor::kMaxRank> inner{}, inner_stride{};

  bool operator==(const View&) const = default;
  bool dense_rows() const { return inner_rank == 0 || (inner_rank == 1 && inner_stride[0] == 1); }
  bool dense() const { return dense_rows() && (rows == 1 || row_stride == cols); }
  int64_t size() const { return rows * cols; }
  int64_t end() const;  // one behind the last element
};

// The place of a part in a matrix.
struct Place {
  int64_t row = 0, col = 0;
};
// Where `part` lies if it is a rectangle of `whole`.
std::optional<Place> place_within(const View& part, const View& whole);
// Whether every element of `part` is one of `whole`; may say no where that is hard to see.
bool covers(const View& whole, const View& part);
bool may_overlap(const View& a, const View& b);

// One value: (at least view.rows, view.cols), as an array of the device or in the program that is
// being recorded, or both.
struct Piece {
  View view;
  ArrayPtr array;
  uint64_t epoch = 0;  // `ref` counts in the program of this number
  Ref ref = kNoRef;
  int32_t argument = -1;  // which `array` is in that program
  int32_t donor = -1;     // the one that held the same view before, whose memory may be reused
  uint64_t made = 0;      // the number of the program that made `array`; 0: the host did
  bool lost = false;      // the program that was to make `array` has failed
};

struct Storage {
  uintptr_t base = 0;
  size_t bytes = 0;
  std::vector<Piece> pieces;  // a later one lies over the earlier ones; elsewhere there are zeros
  bool dirty = false;         // the program that is being recorded writes it
};

// All buffers of a backend. It lives as long as they do.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  Buffer allocate(size_t bytes);
  // Throws Error(kBadInput) for memory of somebody else, or where the tensor reaches out of it.
  Storage& storage_of(const Tensor& tensor, View* view);
  bool contains(const void* data) const;
  Storage* find(uintptr_t base);  // null: freed meanwhile
  void forget_values();
  // Where programs after the one of this number failed on the device.
  void lose_made_after(uint64_t epoch);
  // The address of what an array is the value of; nothing: of nothing here.
  std::optional<uintptr_t> address_of(const Array& array) const;

 private:
  struct Header;
  static void release(void* data, size_t bytes);

  std::map<uintptr_t, Storage> storages_;
};

Element element_of(DType dtype);  // throws Error(kUnsupported)

}  // namespace adder::xla
