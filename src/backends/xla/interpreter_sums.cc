// Products, reductions and sorting of the interpreter. Sums are float32 in a fixed order, in lanes
// that are added up last.
#include <algorithm>
#include <numeric>

#include "backends/xla/interpreter_ops.h"
#include "core/dtype.h"
#include "core/error.h"

namespace adder::xla {
namespace {

using Shape = std::vector<int64_t>;

// One operand of a product as rows of `depth` contracted elements.
class ProductRows {
 public:
  ProductRows(const Operand& operand, const Shape& batch, const Shape& contract,
              Precision precision)
      : element_(operand.type->element),
        rounds_(element_ == Element::kF32 && precision == Precision::kDefault),
        data_(operand.cells->data()) {
    const Shape& shape = operand.type->shape;
    const Shape strides = row_major_strides(shape);
    std::vector<bool> used(shape.size());
    const auto take = [&](int64_t axis, Shape& extents, Shape& steps) {
      extents.push_back(shape[axis]);
      steps.push_back(strides[axis]);
      used[axis] = true;
    };
    for (const int64_t axis : batch) take(axis, batch_extents_, batch_strides_);
    for (const int64_t axis : contract) take(axis, depth_extents_, depth_strides_);
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis)
      if (!used[axis]) take(axis, row_extents_, row_strides_);
    direct_ = element_ == Element::kF32 && !rounds_ &&
              depth_strides_ == row_major_strides(depth_extents_);
  }

  int64_t batches() const { return product(batch_extents_); }
  int64_t rows() const { return product(row_extents_); }
  int64_t depth() const { return product(depth_extents_); }

  // The row as floats: in place where it lies so, else in `scratch` (depth elements).
  const float* row(int64_t batch, int64_t index, float* scratch) {
    const int64_t offset =
        at(batch, batch_extents_, batch_strides_) + at(index, row_extents_, row_strides_);
    std::byte* from = data_ + offset * static_cast<int64_t>(element_bytes(element_));
    if (direct_) return reinterpret_cast<const float*>(from);
    const Shape packed = row_major_strides(depth_extents_);
    if (element_ == Element::kF32) {
      copy_elements({reinterpret_cast<std::byte*>(scratch), packed}, {from, depth_strides_},
                    depth_extents_, sizeof(float));
      if (rounds_)
        for (int64_t i = 0; i < depth(); ++i) scratch[i] = bf16_to_f32(f32_to_bf16(scratch[i]));
      return scratch;
    }
    halves_.resize(static_cast<size_t>(depth()));
    copy_elements({reinterpret_cast<std::byte*>(halves_.data()), packed}, {from, depth_strides_},
                  depth_extents_, sizeof(uint16_t));
    for (size_t i = 0; i < halves_.size(); ++i)
      scratch[i] = element_ == Element::kF16 ? f16_to_f32(halves_[i]) : bf16_to_f32(halves_[i]);
    return scratch;
  }

 private:
  static int64_t product(const Shape& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  }

  static int64_t at(int64_t index, const Shape& extents, const Shape& strides) {
    int64_t offset = 0;
    for (size_t i = extents.size(); i-- > 0; index /= extents[i])
      offset += index % extents[i] * strides[i];
    return offset;
  }

  Element element_;
  bool rounds_;  // float32 to bfloat16
  std::byte* data_;
  Shape batch_extents_, batch_strides_, row_extents_, row_strides_, depth_extents_, depth_strides_;
  bool direct_ = false;
  std::vector<uint16_t> halves_;
};

float lane_product(const float* a, const float* b, int64_t depth) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[k + lane] * b[k + lane];
  for (int64_t lane = 0; k < depth; ++k, ++lane) lanes[lane] += a[k] * b[k];
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// Reduces `count` > 0 elements that lie side by side.
template <typename T, typename F>
T fold_run(const T* in, int64_t count, F f) {
  constexpr int64_t kLanes = 8;
  int64_t i = 0;
  T total = in[i++];
  if (count >= kLanes) {
    T lanes[kLanes];
    std::copy(in, in + kLanes, lanes);
    for (i = kLanes; i + kLanes <= count; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = f(lanes[lane], in[i + lane]);
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t lane = 0; lane < half; ++lane) lanes[lane] = f(lanes[lane], lanes[lane + half]);
    total = lanes[0];
  }
  for (; i < count; ++i) total = f(total, in[i]);
  return total;
}

template <typename T, typename F>
void fold_axes(const Op& op, const Operand& operand, T initial, Cells& result, F f) {
  T* out = result.as<T>();
  std::fill_n(out, result.bytes() / sizeof(T), initial);
  const Shape& shape = operand.type->shape;
  if (std::ranges::find(shape, 0) != shape.end()) return;
  if (shape.empty()) {
    *out = f(*out, *operand.cells->as<T>());
    return;
  }
  Shape strides(shape.size());  // of the result along the axes of the operand
  for (int64_t axis = std::ssize(shape) - 1, step = 1; axis >= 0; --axis) {
    if (std::ranges::find(op.dims, axis) != op.dims.end()) continue;
    strides[axis] = step;
    step *= shape[axis];
  }
  const int64_t run = shape.back(), runs = operand.type->size() / run;
  const bool folds = strides.back() == 0;
  const T* in = operand.cells->as<T>();
  for (int64_t r = 0; r < runs; ++r, in += run) {
    int64_t offset = 0, index = r;
    for (size_t i = shape.size() - 1; i-- > 0; index /= shape[i])
      offset += index % shape[i] * strides[i];
    if (folds) {
      out[offset] = f(out[offset], fold_run(in, run, f));
    } else {
      for (int64_t i = 0; i < run; ++i) out[offset + i] = f(out[offset + i], in[i]);
    }
  }
}

template <typename T>
void reduce_elements(const Op& op, std::span<const Operand> operands, Cells& result) {
  const T initial = *operands[1].cells->as<T>();
  switch (op.reducer) {
    case Reducer::kAdd:
      return fold_axes<T>(op, operands[0], initial, result, PlainAdd());
    case Reducer::kMaximum:
      return fold_axes<T>(op, operands[0], initial, result, PlainMaximum());
    case Reducer::kMinimum:
      return fold_axes<T>(op, operands[0], initial, result, PlainMinimum());
    default:
      break;
  }
  if constexpr (!std::is_floating_point_v<T>) {
    if (op.reducer == Reducer::kAnd)
      return fold_axes<T>(op, operands[0], initial, result, PlainAnd());
    return fold_axes<T>(op, operands[0], initial, result, PlainOr());
  }
}

}  // namespace

CellsPtr interpret_dot(const Op& op, std::span<const Operand> operands, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  ProductRows lhs(operands[0], op.dot.lhs_batch, op.dot.lhs_contract, op.precision);
  ProductRows rhs(operands[1], op.dot.rhs_batch, op.dot.rhs_contract, op.precision);
  const int64_t depth = lhs.depth(), rows = lhs.rows(), columns = rhs.rows();
  // All rows of the left side are at hand while a few of the right side pass by.
  constexpr int64_t kPanel = 32;
  std::vector<float> left(static_cast<size_t>(rows * depth)), right(kPanel * depth);
  std::vector<const float*> left_rows(static_cast<size_t>(rows)), right_rows(kPanel);
  float* out = cells->as<float>();
  for (int64_t batch = 0; batch < lhs.batches(); ++batch, out += rows * columns) {
    for (int64_t m = 0; m < rows; ++m) left_rows[m] = lhs.row(batch, m, left.data() + m * depth);
    for (int64_t first = 0; first < columns; first += kPanel) {
      const int64_t count = std::min(kPanel, columns - first);
      for (int64_t n = 0; n < count; ++n)
        right_rows[n] = rhs.row(batch, first + n, right.data() + n * depth);
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t n = 0; n < count; ++n)
          out[m * columns + first + n] = lane_product(left_rows[m], right_rows[n], depth);
    }
  }
  return cells;
}

CellsPtr interpret_reduce(const Op& op, std::span<const Operand> operands, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  switch (result.element) {
    case Element::kF32:
      reduce_elements<float>(op, operands, *cells);
      break;
    case Element::kI32:
      reduce_elements<int32_t>(op, operands, *cells);
      break;
    case Element::kU32:
      reduce_elements<uint32_t>(op, operands, *cells);
      break;
    case Element::kU64:
      reduce_elements<uint64_t>(op, operands, *cells);
      break;
    case Element::kI8:
      reduce_elements<int8_t>(op, operands, *cells);
      break;
    case Element::kPred:
      reduce_elements<uint8_t>(op, operands, *cells);
      break;
    default:
      fail(ErrorCode::kInternal, "xla interpreter: {} of {}", opcode_name(op.code),
           element_name(result.element));
  }
  return cells;
}

std::vector<CellsPtr> interpret_sort(const Op& op, std::span<const Operand> operands) {
  const Shape& shape = operands[0].type->shape;
  const int64_t step = row_major_strides(shape)[op.axis], extent = shape[op.axis];
  std::vector<CellsPtr> results;
  for (const Operand& operand : operands)
    results.push_back(std::make_shared<Cells>(operand.cells->bytes()));
  if (operands[0].type->size() == 0) return results;
  const float* keys = operands[0].cells->as<float>();
  std::vector<int64_t> order(static_cast<size_t>(extent));
  for (int64_t line = 0; line < operands[0].type->size() / extent; ++line) {
    const int64_t begin = line / step * step * extent + line % step;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      const float x = keys[begin + a * step], y = keys[begin + b * step];
      return x > y || (std::isnan(y) && !std::isnan(x));
    });
    for (size_t i = 0; i < operands.size(); ++i) {  // f32 and i32 alike
      const uint32_t* in = operands[i].cells->as<uint32_t>() + begin;
      uint32_t* out = results[i]->as<uint32_t>() + begin;
      for (int64_t k = 0; k < extent; ++k) out[k * step] = in[order[k] * step];
    }
  }
  return results;
}

}  // namespace adder::xla
