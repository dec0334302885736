// What buffers hold: reading and writing of views.
#include <algorithm>
#include <cstring>

#include "backends/xla/recorder.h"
#include "core/error.h"

namespace adder::xla {
namespace {

// Calls f(element of the view, element of the buffer) for each element.
template <typename F>
void for_each_element(const View& v, F&& f) {
  std::array<int64_t, Tensor::kMaxRank> index{};
  const auto rank = static_cast<size_t>(v.inner_rank);
  int64_t at = 0;
  for (int64_t row = 0; row < v.rows; ++row) {
    index.fill(0);
    for (int64_t col = 0; col < v.cols; ++col) {
      int64_t where = v.offset + row * v.row_stride;
      for (size_t i = 0; i < rank; ++i) where += index[i] * v.inner_stride[i];
      f(at++, where);
      for (size_t i = rank; i-- > 0 && ++index[i] == v.inner[i];) index[i] = 0;
    }
  }
}

View flat_view(Element element, int64_t elements) {
  View v;
  v.element = element;
  v.cols = elements;
  if (elements != 1) {
    v.inner_rank = 1;
    v.inner[0] = elements;
    v.inner_stride[0] = 1;
  }
  return v;
}

std::vector<int64_t> numbers_of(const View& v, int64_t offset, int64_t rows) {
  std::vector<int64_t> n = {rows, offset, v.rows, v.row_stride, v.cols};
  for (size_t i = 0; i < static_cast<size_t>(v.inner_rank); ++i) {
    n.push_back(v.inner[i]);
    n.push_back(v.inner_stride[i]);
  }
  return n;
}

}  // namespace

Ref Recorder::resize_rows(Ref value, int64_t rows) {
  const Shape2 shape = shapes_[static_cast<size_t>(value)];
  if (shape.rows == rows) return value;
  return append(TapeOp::kResizeRows, {value}, {rows}, {shape.element, rows, shape.cols});
}

Ref Recorder::rectangle(Ref value, Place place, int64_t rows, int64_t cols) {
  const Shape2 shape = shapes_[static_cast<size_t>(value)];
  rows = std::min(rows, shape.rows - place.row);
  if (rows == shape.rows && cols == shape.cols) return value;
  return append(TapeOp::kRectangle, {value}, {place.row, rows, place.col, cols},
                {shape.element, rows, cols});
}

Ref Recorder::extract(Piece& piece, const View& view, int64_t rows) {
  Ref flat = piece_ref(piece);
  const int64_t elements = piece.view.size();
  if (piece.view.rows > 1)
    flat = append(TapeOp::kFlatten, {flat}, {piece.view.rows, elements},
                  {view.element, 1, elements});
  return append(TapeOp::kExtract, {flat}, numbers_of(view, view.offset - piece.view.offset, rows),
                {view.element, rows, view.cols});
}

Ref Recorder::load_view(Storage& storage, const View& view, int64_t rows) {
  for (size_t i = storage.pieces.size(); i-- > 0;) {
    Piece& piece = storage.pieces[i];
    if (piece.view == view) return resize_rows(piece_ref(piece), rows);
    if (!may_overlap(piece.view, view)) continue;
    if (const auto place = place_within(view, piece.view))
      return resize_rows(rectangle(piece_ref(piece), *place, rows, view.cols), rows);
    if (piece.view.dense() && covers(piece.view, view)) return extract(piece, view, rows);
    throw Unsettled{storage.base, view.element};
  }
  return zeros_value(view.element, rows, view.cols);
}

Ref Recorder::zeros_value(Element element, int64_t rows, int64_t cols) {
  return append(TapeOp::kZeros, {}, {static_cast<int64_t>(element), rows, cols},
                {element, rows, cols});
}

Ref Recorder::load(const Tensor& tensor, int64_t rows) {
  if (tensor.size() == 0) {  // perhaps without memory
    const int64_t have = tensor.rank >= 2 ? tensor.dim(0) : 1;
    return zeros_value(element_of(tensor.dtype), rows < 0 ? have : rows,
                       have == 0 ? 0 : tensor.size() / have);
  }
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  return load_view(storage, view, rows < 0 ? view.rows : rows);
}

Ref Recorder::load_state(const Tensor& tensor) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  const bool fresh = std::ranges::none_of(
      storage.pieces, [&](const Piece& p) { return may_overlap(p.view, view); });
  if (fresh) {
    Piece piece;
    piece.view = view;
    piece.array = zeros(view.element, view.rows, view.cols);
    storage.pieces.push_back(std::move(piece));
  }
  return load_view(storage, view, view.rows);
}

void Recorder::store(const Tensor& tensor, Ref value) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  touch(storage);
  Piece piece;
  piece.view = view;
  piece.epoch = epoch_;
  piece.ref = value;
  for (const Piece& old : storage.pieces) {
    if (old.array == nullptr || old.epoch != epoch_ || !(old.view == view)) continue;
    const Shape2& now = shapes_[static_cast<size_t>(value)];
    if (old.array->type() == Type{now.element, {now.rows, now.cols}}) piece.donor = old.argument;
  }
  std::erase_if(storage.pieces, [&](const Piece& p) { return covers(view, p.view); });
  storage.pieces.push_back(std::move(piece));
}

void Recorder::replace(Storage& storage, const View& view, ArrayPtr array) {
  std::erase_if(storage.pieces, [&](const Piece& p) { return covers(view, p.view); });
  Piece piece;
  piece.view = view;
  piece.array = std::move(array);
  storage.pieces.push_back(std::move(piece));
}

std::vector<std::byte> Recorder::compose(const Storage& storage, Element element) {
  const auto width = element_bytes(element);
  std::vector<std::byte> whole(storage.bytes / width * width), part;
  for (const Piece& piece : storage.pieces) {
    const auto piece_width = element_bytes(piece.view.element);
    part.resize(piece.array->type().bytes());
    executor_->download(*piece.array, part);
    for_each_element(piece.view, [&](int64_t from, int64_t to) {
      std::memcpy(whole.data() + static_cast<size_t>(to) * piece_width,
                  part.data() + static_cast<size_t>(from) * piece_width, piece_width);
    });
  }
  return whole;
}

void Recorder::settle(const Unsettled& memory) {
  flush();
  Storage* storage = memory_->find(memory.base);
  if (storage == nullptr) return;
  const std::vector<std::byte> whole = compose(*storage, memory.element);
  const auto elements = static_cast<int64_t>(whole.size() / element_bytes(memory.element));
  storage->pieces.clear();
  replace(*storage, flat_view(memory.element, elements),
          executor_->upload({memory.element, {1, elements}}, whole));
}

void Recorder::read(const Tensor& tensor, std::span<std::byte> host) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  flush();
  if (host.empty()) return;
  const Piece* piece = nullptr;
  for (size_t i = storage.pieces.size(); i-- > 0 && piece == nullptr;)
    if (may_overlap(storage.pieces[i].view, view)) piece = &storage.pieces[i];
  if (piece == nullptr) {
    std::ranges::fill(host, std::byte{0});
    return;
  }
  if (piece->view == view) {
    std::vector<std::byte> all(piece->array->type().bytes());  // perhaps with more rows
    executor_->download(*piece->array, all);
    std::copy_n(all.begin(), host.size(), host.begin());
    return;
  }
  const auto place = place_within(view, piece->view);
  if (place && view.rows == 1) {
    // The place is an argument: one program for all slots of a state.
    const Ref operands[] = {argument(piece->array), number(static_cast<int32_t>(place->row)),
                            number(static_cast<int32_t>(place->col))};
    const Ref part = append(TapeOp::kSliceAt, {operands[0], operands[1], operands[2]},
                            {1, view.cols}, {view.element, 1, view.cols});
    const auto arrays = flush({&part, 1});
    executor_->download(*arrays[0], host);
    return;
  }
  const std::vector<std::byte> whole = compose(storage, view.element);
  std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(
                                  static_cast<size_t>(view.offset) * element_bytes(view.element)),
              host.size(), host.begin());
}

// Changes a row, or a part of one, of an array in place.
void Recorder::update_part(Storage& storage, size_t index, const View& view,
                           const ArrayPtr& update) {
  const Piece& piece = storage.pieces[index];
  const auto place = place_within(view, piece.view);
  const Type type = piece.array->type();
  const Ref whole = argument(piece.array);  // number 0
  const Ref part = argument(update);
  const Ref row = number(static_cast<int32_t>(place->row));
  const Ref col = number(static_cast<int32_t>(place->col));
  touch(storage);
  Piece changed;
  changed.view = piece.view;
  changed.epoch = epoch_;
  changed.ref =
      append(TapeOp::kUpdateAt, {whole, part, row, col}, {},
             {type.element, type.shape[0], type.shape[1]});
  changed.donor = 0;
  storage.pieces[index] = std::move(changed);
  flush();
}

void Recorder::write(const Tensor& tensor, std::span<const std::byte> host) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  if (host.empty()) return;
  const ArrayPtr array = executor_->upload({view.element, {view.rows, view.cols}}, host);
  const auto width = element_bytes(view.element);
  if (view.rows == 1) {
    flush();
    // One slot of a state that nobody has used so far.
    const auto elements = static_cast<int64_t>(storage.bytes / width);
    if (storage.pieces.empty() && view.cols * 2 <= elements)
      replace(storage, flat_view(view.element, elements), zeros(view.element, 1, elements));
    for (size_t i = storage.pieces.size(); i-- > 0;) {
      const View& whole = storage.pieces[i].view;
      if (!may_overlap(whole, view)) continue;
      if (!covers(view, whole) && place_within(view, whole))
        return update_part(storage, i, view, array);
      break;
    }
  }
  replace(storage, view, array);
}

void Recorder::set_slot(const Tensor& state, int32_t from, int32_t to) {
  View to_view, from_view;
  Storage& storage = memory_->storage_of(state.select(to), &to_view);
  if (from >= 0) memory_->storage_of(state.select(from), &from_view);
  // A slot is contiguous: (elements), whatever the rank of the state.
  for (View* v : {&to_view, &from_view})
    *v = [](const View& view) {
      View row = flat_view(view.element, view.size());
      row.offset = view.offset;
      return row;
    }(*v);
  flush();
  if (storage.pieces.empty()) return;
  const size_t last = storage.pieces.size() - 1;
  const Piece& piece = storage.pieces[last];
  if (!place_within(to_view, piece.view) || (from >= 0 && !place_within(from_view, piece.view))) {
    settle({storage.base, to_view.element});
    return set_slot(state, from, to);
  }
  if (from < 0)
    return update_part(storage, last, to_view, zeros(to_view.element, 1, to_view.cols));
  const auto place = place_within(from_view, piece.view);
  const Ref operands[] = {argument(piece.array), number(static_cast<int32_t>(place->row)),
                          number(static_cast<int32_t>(place->col))};
  const Ref part = append(TapeOp::kSliceAt, {operands[0], operands[1], operands[2]},
                          {1, to_view.cols}, {to_view.element, 1, to_view.cols});
  update_part(storage, last, to_view, flush({&part, 1})[0]);
}

Tensor Recorder::import(const Tensor& host, Buffer* owner) {
  if (memory_->contains(host.data)) return host;  // here already
  const Element element = element_of(host.dtype);
  const auto width = element_bytes(element);
  const int64_t rows = host.rank >= 2 ? host.dim(0) : 1, cols = rows == 0 ? 0 : host.size() / rows;
  std::vector<std::byte> packed;
  std::span<const std::byte> bytes;
  if (host.is_contiguous()) {
    bytes = {host.bytes(), static_cast<size_t>(host.size()) * width};
  } else {
    // Rows with gaps, as those of a matrix within another one.
    ADDER_CHECK(host.rank == 2 && host.has_unit_inner_stride(),
                "xla: expected a weight with contiguous rows, got {}", host.describe());
    packed.resize(static_cast<size_t>(host.size()) * width);
    const auto row = static_cast<size_t>(cols) * width;
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(packed.data() + static_cast<size_t>(i) * row, host.bytes(i * host.stride[0]), row);
    bytes = packed;
  }
  *owner = memory_->allocate(bytes.size());
  Tensor t = host;
  t.data = owner->data();
  t.offset = 0;
  int64_t step = 1;
  for (int axis = t.rank; axis-- > 0;) {
    t.stride[static_cast<size_t>(axis)] = step;
    step *= t.dim(axis);
  }
  if (bytes.empty()) return t;
  View view;
  Storage& storage = memory_->storage_of(t, &view);
  replace(storage, view, executor_->upload({element, {rows, cols}}, bytes));
  return t;
}

std::vector<Ref> Recorder::begin_capture(std::span<const Type> extra) {
  flush();
  capturing_ = true;
  std::vector<Ref> refs;
  for (const Type& type : extra) refs.push_back(argument(type, nullptr));
  return refs;
}

void Recorder::drop_capture() {
  for (Saved& saved : saved_)
    if (Storage* storage = memory_->find(saved.base)) {
      storage->pieces = std::move(saved.pieces);
      storage->dirty = false;
    }
  saved_.clear();
  dirty_.clear();
  capturing_ = false;
  ++epoch_;
  tape_.clear();
  shapes_.clear();
  arguments_.clear();
}

Recorder::Capture Recorder::end_capture() {
  Capture capture;
  capture.tape = tape_;
  capture.arguments = arguments_;
  for (const Saved& saved : saved_) {
    const Storage* storage = memory_->find(saved.base);
    if (storage == nullptr) continue;
    for (const Piece& old : saved.pieces) {
      if (old.epoch != epoch_) continue;  // nobody has read it
      for (const Piece& now : storage->pieces) {
        if (!(now.view == old.view) || now.donor != old.argument) continue;
        capture.states.push_back({saved.base, old.view, old.ref, now.ref, old.argument});
        capture.arguments[static_cast<size_t>(old.argument)] = nullptr;
      }
    }
  }
  drop_capture();
  return capture;
}

ArrayPtr Recorder::take_state(const State& state) {
  flush();
  Storage* storage = memory_->find(state.base);
  const auto missing = [] { fail(ErrorCode::kInternal, "xla: a state of a decode loop is gone"); };
  if (storage == nullptr) missing();
  const auto same = [&](const Piece& p) { return p.view == state.view; };
  if (storage->pieces.empty())
    return zeros(state.view.element, state.view.rows, state.view.cols);
  if (!same(storage->pieces.back())) {
    const std::vector<std::byte> whole = compose(*storage, state.view.element);
    const auto width = element_bytes(state.view.element);
    std::vector<std::byte> part(static_cast<size_t>(state.view.size()) * width);
    for_each_element(state.view, [&](int64_t to, int64_t from) {
      std::memcpy(part.data() + static_cast<size_t>(to) * width,
                  whole.data() + static_cast<size_t>(from) * width, width);
    });
    return executor_->upload({state.view.element, {state.view.rows, state.view.cols}}, part);
  }
  ArrayPtr array = std::move(storage->pieces.back().array);
  storage->pieces.pop_back();
  return array;
}

void Recorder::put_state(const State& state, ArrayPtr array) {
  if (Storage* storage = memory_->find(state.base)) replace(*storage, state.view, std::move(array));
}

}  // namespace adder::xla
