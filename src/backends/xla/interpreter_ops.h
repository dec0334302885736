// The operations of the interpreter, one function for each family of opcodes. The program has been
// verified: types fit, and nothing is checked here again.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "backends/xla/program.h"

namespace adder::xla {

// The memory of a value, row-major; it does not change once others may see it. An i1 is a byte,
// 0 or 1.
class Cells {
 public:
  explicit Cells(size_t bytes);  // throws Error(kIo) where there is no memory left

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t bytes_;
};
using CellsPtr = std::shared_ptr<Cells>;

struct Operand {
  const Type* type;
  CellsPtr cells;  // the only owner where nobody reads the value afterwards
};

CellsPtr interpret_elementwise(const Op& op, std::span<const Operand> operands, const Type& result);
CellsPtr interpret_convert(const Operand& operand, const Type& result);
CellsPtr interpret_movement(const Op& op, std::span<Operand> operands, const Type& result);
CellsPtr interpret_dot(const Op& op, std::span<const Operand> operands, const Type& result);
CellsPtr interpret_reduce(const Op& op, std::span<const Operand> operands, const Type& result);
std::vector<CellsPtr> interpret_sort(const Op& op, std::span<const Operand> operands);

// In elements, of a row-major array.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape);

// An array somewhere in memory; strides in elements.
struct Cursor {
  std::byte* data;
  std::vector<int64_t> strides;
};

// Copies `shape` elements of `width` bytes; the two do not overlap. A stride of 0 in `from`
// repeats.
void copy_elements(const Cursor& to, const Cursor& from, std::vector<int64_t> shape, size_t width);

// What binary operations and reductions have in common. Integers wrap around; as in XLA the larger
// or smaller of a NaN and a number is NaN, and 0 is larger than -0.
struct PlainAdd {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    }
  }
};

struct PlainMaximum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
      if (a == b) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};

struct PlainMinimum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
      if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};

struct PlainAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

struct PlainOr {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

}  // namespace adder::xla
