// Operations of the interpreter that move elements and do not compute with them.
#include <algorithm>

#include "backends/xla/interpreter_ops.h"
#include "core/error.h"

namespace adder::xla {
namespace {

using Shape = std::vector<int64_t>;

Cursor whole_place(const CellsPtr& cells, const Shape& shape) {
  return {cells->data(), row_major_strides(shape)};
}

// The part of an array that begins at `starts`.
Cursor part_place(const CellsPtr& cells, const Type& type, const Shape& starts) {
  Cursor place = whole_place(cells, type.shape);
  int64_t offset = 0;
  for (size_t i = 0; i < starts.size(); ++i) offset += starts[i] * place.strides[i];
  place.data += offset * static_cast<int64_t>(element_bytes(type.element));
  return place;
}

template <typename T>
void copy_run(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
              int64_t count) {
  T* out = reinterpret_cast<T*>(to);
  const T* in = reinterpret_cast<const T*>(from);
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill(out, out + count, *in);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i * to_stride] = in[i * from_stride];
  }
}

template <typename T>
void copy_all(const Cursor& to, const Cursor& from, const Shape& shape) {
  const size_t outer = shape.size() - 1;
  const auto width = static_cast<int64_t>(sizeof(T));
  Shape index(outer);
  std::byte* out = to.data;
  const std::byte* in = from.data;
  while (true) {
    copy_run<T>(out, to.strides[outer], in, from.strides[outer], shape[outer]);
    size_t axis = outer;
    while (true) {  // to the next run, as an odometer
      if (axis == 0) return;
      --axis;
      out += to.strides[axis] * width;
      in += from.strides[axis] * width;
      if (++index[axis] < shape[axis]) break;
      out -= shape[axis] * to.strides[axis] * width;
      in -= shape[axis] * from.strides[axis] * width;
      index[axis] = 0;
    }
  }
}

template <typename T>
void fill_cells(Cells& cells, uint64_t bits) {
  const T value = static_cast<T>(bits);
  std::fill_n(cells.as<T>(), cells.bytes() / sizeof(T), value);
}

void fill_cells_of(Cells& cells, size_t width, uint64_t bits) {
  if (width == 1) return fill_cells<uint8_t>(cells, bits);
  if (width == 2) return fill_cells<uint16_t>(cells, bits);
  if (width == 4) return fill_cells<uint32_t>(cells, bits);
  fill_cells<uint64_t>(cells, bits);
}

template <typename T>
void write_iota(Cells& cells, const Shape& shape, int64_t axis) {
  const int64_t step = row_major_strides(shape)[axis], extent = shape[axis];
  const auto size = static_cast<int64_t>(cells.bytes() / sizeof(T));
  T* out = cells.as<T>();
  for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(i / step % extent);
}

CellsPtr make_iota(const Op& op, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  switch (result.element) {
    case Element::kI8:
      write_iota<int8_t>(*cells, result.shape, op.axis);
      break;
    case Element::kF32:
      write_iota<float>(*cells, result.shape, op.axis);
      break;
    case Element::kU64:
      write_iota<uint64_t>(*cells, result.shape, op.axis);
      break;
    default:
      write_iota<uint32_t>(*cells, result.shape, op.axis);
  }
  return cells;
}

// Starts of a dynamic slice, moved so that the slice lies within the array, as StableHLO has it.
Shape clamped_starts(std::span<const Operand> starts, const Shape& shape, const Shape& sizes) {
  Shape clamped;
  for (size_t i = 0; i < starts.size(); ++i)
    clamped.push_back(std::clamp<int64_t>(*starts[i].cells->as<int32_t>(), 0, shape[i] - sizes[i]));
  return clamped;
}

CellsPtr gather(std::span<const Operand> operands, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  const int64_t rows = operands[0].type->shape[0], count = result.shape[0];
  const size_t row = operands[0].type->bytes() / static_cast<size_t>(rows);
  const int32_t* indices = operands[1].cells->as<int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(std::clamp<int64_t>(indices[i], 0, rows - 1));
    std::memcpy(cells->data() + static_cast<size_t>(i) * row, operands[0].cells->data() + at * row,
                row);
  }
  return cells;
}

CellsPtr concatenate_parts(const Op& op, std::span<const Operand> operands, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  Shape starts(result.shape.size());
  for (const Operand& part : operands) {
    copy_elements(part_place(cells, result, starts), whole_place(part.cells, part.type->shape),
                  part.type->shape, element_bytes(result.element));
    starts[op.axis] += part.type->shape[op.axis];
  }
  return cells;
}

}  // namespace

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void copy_elements(const Cursor& to, const Cursor& from, Shape shape, size_t width) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  // Axes that lie in both as one axis would become one.
  Cursor out{to.data, {}}, in{from.data, {}};
  Shape merged;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!merged.empty() && out.strides.back() == to.strides[i] * shape[i] &&
        in.strides.back() == from.strides[i] * shape[i]) {
      merged.back() *= shape[i];
      out.strides.back() = to.strides[i];
      in.strides.back() = from.strides[i];
    } else {
      merged.push_back(shape[i]);
      out.strides.push_back(to.strides[i]);
      in.strides.push_back(from.strides[i]);
    }
  }
  if (merged.empty()) {
    merged = out.strides = in.strides = {1};
  }
  if (width == 1) return copy_all<uint8_t>(out, in, merged);
  if (width == 2) return copy_all<uint16_t>(out, in, merged);
  if (width == 4) return copy_all<uint32_t>(out, in, merged);
  copy_all<uint64_t>(out, in, merged);
}

CellsPtr interpret_movement(const Op& op, std::span<Operand> operands, const Type& result) {
  const size_t width = element_bytes(result.element);
  if (op.code == Opcode::kReshape || op.code == Opcode::kBitcastConvert) return operands[0].cells;
  if (op.code == Opcode::kIota) return make_iota(op, result);
  if (op.code == Opcode::kGatherRows) return gather(operands, result);
  if (op.code == Opcode::kConcatenate) return concatenate_parts(op, operands, result);
  if (op.code == Opcode::kDynamicUpdateSlice) {
    CellsPtr cells = operands[0].cells;
    operands[0].cells.reset();
    if (cells.use_count() > 1) {  // somebody reads the old values later
      auto copy = std::make_shared<Cells>(cells->bytes());
      std::memcpy(copy->data(), cells->data(), cells->bytes());
      cells = std::move(copy);
    }
    const Shape& part = operands[1].type->shape;
    const Shape starts = clamped_starts(operands.subspan(2), result.shape, part);
    copy_elements(part_place(cells, result, starts), whole_place(operands[1].cells, part), part,
                  width);
    return cells;
  }

  auto cells = std::make_shared<Cells>(result.bytes());
  const Cursor to = whole_place(cells, result.shape);
  switch (op.code) {
    case Opcode::kConstant:
      fill_cells_of(*cells, width, op.payload);
      return cells;
    case Opcode::kTranspose: {
      const Shape strides = row_major_strides(operands[0].type->shape);
      Cursor from{operands[0].cells->data(), {}};
      for (const int64_t axis : op.dims) from.strides.push_back(strides[axis]);
      copy_elements(to, from, result.shape, width);
      return cells;
    }
    case Opcode::kBroadcastInDim: {
      const Shape& shape = operands[0].type->shape;
      const Shape strides = row_major_strides(shape);
      Cursor from{operands[0].cells->data(), Shape(result.shape.size())};
      for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i] > 1) from.strides[op.dims[i]] = strides[i];
      copy_elements(to, from, result.shape, width);
      return cells;
    }
    case Opcode::kSlice:
      copy_elements(to, part_place(operands[0].cells, *operands[0].type, op.starts), result.shape,
                    width);
      return cells;
    case Opcode::kDynamicSlice: {
      const Shape starts =
          clamped_starts(operands.subspan(1), operands[0].type->shape, result.shape);
      copy_elements(to, part_place(operands[0].cells, *operands[0].type, starts), result.shape,
                    width);
      return cells;
    }
    case Opcode::kPad: {
      uint64_t bits = 0;
      std::memcpy(&bits, operands[1].cells->data(), width);
      fill_cells_of(*cells, width, bits);
      const Shape& shape = operands[0].type->shape;
      copy_elements(part_place(cells, result, op.starts), whole_place(operands[0].cells, shape),
                    shape, width);
      return cells;
    }
    default:
      fail(ErrorCode::kInternal, "xla interpreter: {} does not move elements",
           opcode_name(op.code));
  }
}

}  // namespace adder::xla
