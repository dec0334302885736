#include "ops/tile.h"

#include <algorithm>

#include "ops/convert.h"

namespace adder::ops {
namespace {

// 4 x 4 numbers turn over in registers; this vector exists on every processor.
using V4 = float __attribute__((vector_size(16)));

constexpr int64_t kStrip = 16;   // vectors of the long axis that are turned over together
constexpr int64_t kLength = 64;  // numbers of each of them

// out[c * out_row + r] = in[r * in_row + c]
void transpose(const float* in, int64_t in_row, int64_t rows, int64_t cols, float* out,
               int64_t out_row) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      V4 v[4];
      for (int64_t i = 0; i < 4; ++i) std::memcpy(&v[i], in + (r + i) * in_row + c, sizeof(V4));
      const V4 low01 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
      const V4 high01 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
      const V4 low23 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
      const V4 high23 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
      v[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
      v[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
      v[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
      v[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
      for (int64_t i = 0; i < 4; ++i) std::memcpy(out + (c + i) * out_row + r, &v[i], sizeof(V4));
    }
    for (; c < cols; ++c)
      for (int64_t i = 0; i < 4; ++i) out[c * out_row + r + i] = in[(r + i) * in_row + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out[c * out_row + r] = in[r * in_row + c];
}

// Arrays whose first axis is the one that neighbours in memory: read along it, and turned over.
bool runs_along_rows(const ArrayView& a) {
  const auto distance = [](int64_t step) { return step < 0 ? -step : step; };
  return a.dim(0) > 1 && a.dim(1) > 1 && distance(a.step(0)) < distance(a.step(1));
}

// Aligned float32 whose few rows neighbour, as those of a state: turned over without a copy in
// between. Long ones lie pages apart from column to column, and are read in strips.
bool turned_floats(const ArrayView& a) {
  constexpr int64_t kItem = sizeof(float), kFew = 32;
  return a.dtype == DType::kF32 && a.dim(0) <= kFew && a.step(0) == kItem &&
         a.step(1) % kItem == 0 && reinterpret_cast<uintptr_t>(a.data) % alignof(float) == 0;
}

// True where a backend can use the memory as it lies: float32, aligned, unit stride on the last
// axis.
bool usable(const ArrayView& a) {
  if (a.dtype != DType::kF32 || a.is_complex) return false;
  constexpr int64_t kItem = sizeof(float);
  const int last = a.rank - 1;
  if (a.dim(last) > 1 && a.step(last) != kItem) return false;
  if (reinterpret_cast<uintptr_t>(a.data) % alignof(float) != 0) return false;
  for (int axis = 0; axis < last; ++axis)
    if (a.step(axis) % kItem != 0) return false;
  return a.data != nullptr;
}

Tensor direct(const ArrayView& a) {
  Tensor t;
  t.data = a.data;
  t.rank = a.rank;
  for (int axis = 0; axis < a.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    t.shape[i] = a.shape[i];
    t.stride[i] = a.stride[i] / static_cast<int64_t>(sizeof(float));
  }
  t.stride[static_cast<size_t>(a.rank - 1)] = 1;
  return t;
}

}  // namespace

float load_float(const std::byte* address, DType dtype) {
  float value = 0.0f;
  load_run(address, 0, dtype, 1, &value);
  return value;
}

void store_float(float value, std::byte* address, DType dtype) {
  store_run(&value, address, 0, dtype, 1);
}

int64_t load_integer(const ArrayView& array, int64_t i) {
  const std::byte* address = array.data + i * array.step(0);
  return array.dtype == DType::kI64 ? load_bits<int64_t>(address) : load_bits<int32_t>(address);
}

bool any_above_zero(const ArrayView& whole) {
  ArrayView array = whole;
  // Two axes without a gap between them are one.
  while (array.rank > 1 &&
         array.step(array.rank - 2) == array.dim(array.rank - 1) * array.step(array.rank - 1)) {
    const auto last = static_cast<size_t>(array.rank - 1);
    array.shape[last - 1] *= array.shape[last];
    array.stride[last - 1] = array.stride[last];
    --array.rank;
  }
  // An expanded axis says the same each time.
  const int64_t length = array.step(0) == 0 ? std::min<int64_t>(1, array.dim(0)) : array.dim(0);
  if (array.rank > 1) {
    for (int64_t i = 0; i < length; ++i)
      if (any_above_zero(array.select(0, i))) return true;
    return false;
  }
  constexpr int64_t kLine = 256;
  float values[kLine];
  bool above = false;
  for (int64_t i = 0; i < length; i += kLine) {
    const int64_t count = std::min(kLine, length - i);
    load_run(array.data + i * array.step(0), array.step(0), array.dtype, count, values);
    for (int64_t k = 0; k < count; ++k) above |= !(values[k] <= 0.0f);
  }
  return above;
}

void gather(const ArrayView& from, float* out, int64_t out_row) {
  const int64_t rows = from.dim(0), cols = from.dim(1);
  if (!runs_along_rows(from)) {
    for (int64_t r = 0; r < rows; ++r)
      load_run(from.data + r * from.step(0), from.step(1), from.dtype, cols, out + r * out_row);
    return;
  }
  if (turned_floats(from)) {
    const auto* in = reinterpret_cast<const float*>(from.data);
    return transpose(in, from.step(1) / static_cast<int64_t>(sizeof(float)), cols, rows, out,
                     out_row);
  }
  alignas(64) float strip[kStrip * kLength];
  for (int64_t c = 0; c < cols; c += kStrip) {
    const int64_t width = std::min(kStrip, cols - c);
    for (int64_t r = 0; r < rows; r += kLength) {
      const int64_t length = std::min(kLength, rows - r);
      for (int64_t i = 0; i < width; ++i)
        load_run(from.data + r * from.step(0) + (c + i) * from.step(1), from.step(0), from.dtype,
                 length, strip + i * kLength);
      transpose(strip, kLength, width, length, out + r * out_row + c, out_row);
    }
  }
}

void scatter(const float* in, int64_t in_row, const ArrayView& to) {
  const int64_t rows = to.dim(0), cols = to.dim(1);
  if (!runs_along_rows(to)) {
    for (int64_t r = 0; r < rows; ++r)
      store_run(in + r * in_row, to.data + r * to.step(0), to.step(1), to.dtype, cols);
    return;
  }
  if (turned_floats(to)) {
    auto* out = reinterpret_cast<float*>(to.data);
    return transpose(in, in_row, rows, cols, out, to.step(1) / static_cast<int64_t>(sizeof(float)));
  }
  alignas(64) float strip[kStrip * kLength];
  for (int64_t c = 0; c < cols; c += kStrip) {
    const int64_t width = std::min(kStrip, cols - c);
    for (int64_t r = 0; r < rows; r += kLength) {
      const int64_t length = std::min(kLength, rows - r);
      transpose(in + r * in_row + c, in_row, length, width, strip, kLength);
      for (int64_t i = 0; i < width; ++i)
        store_run(strip + i * kLength, to.data + r * to.step(0) + (c + i) * to.step(1), to.step(0),
                  to.dtype, length);
    }
  }
}

void copy_exact(const ArrayView& from, const ArrayView& to) {
  if (from.rank == 0) return copy_exact(from.insert_axis(0), to.insert_axis(0));
  if (from.rank > 1) {
    for (int64_t i = 0; i < from.dim(0); ++i) copy_exact(from.select(0, i), to.select(0, i));
    return;
  }
  const auto bytes = static_cast<size_t>(from.item_bytes());
  for (int64_t i = 0; i < from.dim(0); ++i)
    std::memcpy(to.data + i * to.step(0), from.data + i * from.step(0), bytes);
}

Tensor load_rows(const ArrayView& from, float* scratch) {
  if (!from) return {};
  if (usable(from)) return direct(from);
  const int64_t cols = from.dim(1);
  gather(from, scratch, cols);
  return {scratch, DType::kF32, {from.dim(0), cols}};
}

Tensor load_heads(const ArrayView& from, float* scratch) {
  if (!from) return {};
  if (usable(from)) return direct(from);
  const int64_t heads = from.dim(1), headdim = from.dim(2);
  for (int64_t h = 0; h < heads; ++h)
    gather(from.select(1, h), scratch + h * headdim, heads * headdim);
  return {scratch, DType::kF32, {from.dim(0), heads, headdim}};
}

Tensor load_vector(const ArrayView& from, float* scratch) {
  if (!from) return {};
  load_run(from.data, from.step(0), from.dtype, from.dim(0), scratch);
  return {scratch, DType::kF32, {from.dim(0)}};
}

Tensor output_rows(const ArrayView& to, float* scratch) {
  if (usable(to)) return direct(to);
  return {scratch, DType::kF32, {to.dim(0), to.dim(1)}};
}

Tensor output_heads(const ArrayView& to, float* scratch) {
  if (usable(to)) return direct(to);
  return {scratch, DType::kF32, {to.dim(0), to.dim(1), to.dim(2)}};
}

void flush(const Tensor& written, const ArrayView& to) {
  if (written.data == to.data) return;
  const float* from = written.ptr<const float>();
  if (to.rank == 2) return scatter(from, written.stride[0], to);
  for (int64_t h = 0; h < to.dim(1); ++h)
    scatter(from + h * written.stride[1], written.stride[0], to.select(1, h));
}

void fill_zero(const ArrayView& to) {
  if (to.rank > 1) {
    for (int64_t i = 0; i < to.dim(0); ++i) fill_zero(to.select(0, i));
    return;
  }
  const auto bytes = static_cast<size_t>(to.item_bytes());  // zero is all bits zero in every dtype
  for (int64_t i = 0; i < to.dim(0); ++i) std::memset(to.data + i * to.step(0), 0, bytes);
}

}  // namespace adder::ops
