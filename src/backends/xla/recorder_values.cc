// What buffers hold: reading and writing of views.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "backends/xla/recorder.h"
#include "core/error.h"

namespace adder::xla {
namespace {

constexpr std::byte kNotANumber{0xff};  // each byte of a NaN of any width

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

// The elements of a contiguous view as one row.
View row_view(const View& view) {
  View row = flat_view(view.element, view.size());
  row.offset = view.offset;
  return row;
}

struct ViewNumbers {
  std::array<int64_t, 5 + 2 * Tensor::kMaxRank> numbers{};
  size_t count = 0;
};

ViewNumbers numbers_of(const View& v, int64_t offset, int64_t rows) {
  ViewNumbers n{{rows, offset, v.rows, v.row_stride, v.cols}, 5};
  for (size_t i = 0; i < static_cast<size_t>(v.inner_rank); ++i) {
    n.numbers[n.count++] = v.inner[i];
    n.numbers[n.count++] = v.inner_stride[i];
  }
  return n;
}

}  // namespace

const ArrayPtr& Recorder::array_of(const Piece& piece) const {
  if (piece.lost)
    fail(ErrorCode::kIo, "xla: what was computed is lost since the device has failed: {}",
         failure_);
  return piece.array;
}

// A lost state of which one slot will be written: the other slots are NaN.
void Recorder::revive(Piece& piece) {
  const Type type{piece.view.element, {piece.view.rows, piece.view.cols}};
  piece.array = executor_->upload(type, std::vector(type.bytes(), kNotANumber));
  piece.made = 0;
  piece.lost = false;
}

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
    flat =
        append(TapeOp::kFlatten, {flat}, {piece.view.rows, elements}, {view.element, 1, elements});
  const ViewNumbers n = numbers_of(view, view.offset - piece.view.offset, rows);
  return append(TapeOp::kExtract, {flat}, std::span(n.numbers).first(n.count),
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
    throw Unsettled{storage.base, view};
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
  for (size_t i = storage.pieces.size(); i-- > 0;) {
    Piece& piece = storage.pieces[i];
    if (piece.view == view) return piece_ref(piece);
    // Slots that were written one by one.
    if (may_overlap(piece.view, view)) throw Unsettled{storage.base, view};
  }
  replace(storage, view, zeros(view.element, view.rows, view.cols));
  return piece_ref(storage.pieces.back());
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
    const Type& then = old.array->type();
    if (then.element == now.element &&
        std::ranges::equal(then.shape, std::array{now.rows, now.cols}))
      piece.donor = old.argument;
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
    if (piece.lost) {
      part.assign(static_cast<size_t>(piece.view.size()) * piece_width, kNotANumber);
    } else {
      part.resize(piece.array->type().bytes());
      download(*piece.array, part, piece.made);
    }
    for_each_element(piece.view, [&](int64_t from, int64_t to) {
      std::memcpy(whole.data() + static_cast<size_t>(to) * piece_width,
                  part.data() + static_cast<size_t>(from) * piece_width, piece_width);
    });
  }
  return whole;
}

std::vector<std::byte> Recorder::part_of(std::span<const std::byte> whole, const View& view) {
  const auto width = element_bytes(view.element);
  std::vector<std::byte> part(static_cast<size_t>(view.size()) * width);
  for_each_element(view, [&](int64_t to, int64_t from) {
    std::memcpy(part.data() + static_cast<size_t>(to) * width,
                whole.data() + static_cast<size_t>(from) * width, width);
  });
  return part;
}

void Recorder::settle(const Unsettled& memory) {
  Storage* storage = memory_->find(memory.base);
  if (storage == nullptr) return;
  if (storage->dirty) {
    flush();
    storage = memory_->find(memory.base);
  }
  const View& view = memory.view;
  const std::vector<std::byte> whole = compose(*storage, view.element);
  const auto elements = static_cast<int64_t>(whole.size() / element_bytes(view.element));
  storage->pieces.clear();
  replace(*storage, flat_view(view.element, elements),
          executor_->upload({view.element, {1, elements}}, whole));
  replace(*storage, view,
          executor_->upload({view.element, {view.rows, view.cols}}, part_of(whole, view)));
}

void Recorder::read(const Tensor& tensor, std::span<std::byte> host) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  flush();
  if (host.empty()) return;
  const View row = row_view(view);
  for (size_t i = storage.pieces.size(); i-- > 0;) {
    const Piece& piece = storage.pieces[i];
    if (!may_overlap(piece.view, view)) continue;
    if (piece.view == view) {
      const ArrayPtr& array = array_of(piece);
      whole_.resize(array->type().bytes());  // perhaps with more rows
      download(*array, whole_, piece.made);
      std::copy_n(whole_.begin(), host.size(), host.begin());
    } else if (const auto place = place_within(row, piece.view)) {
      const ArrayPtr part = slice_at(piece, *place, row);
      download(*part, host, last_program());
    } else {
      std::ranges::copy(part_of(compose(storage, view.element), row), host.begin());
    }
    return;
  }
  std::ranges::fill(host, std::byte{0});
}

// A part of one row. Its place is an argument: one program for all slots of a state.
ArrayPtr Recorder::slice_at(const Piece& piece, Place place, const View& part) {
  const Ref whole = argument(array_of(piece));
  const Ref row = number(Role::kRow, static_cast<int32_t>(place.row));
  const Ref col = number(Role::kCol, static_cast<int32_t>(place.col));
  const Ref slice =
      append(TapeOp::kSliceAt, {whole, row, col}, {1, part.cols}, {part.element, 1, part.cols});
  return flush(slice);
}

// Changes a row, or a part of one, of an array in place.
void Recorder::update_at(Storage& storage, Piece& piece, Place place, const ArrayPtr& update) {
  if (piece.lost) revive(piece);
  const Type type = piece.array->type();
  touch(storage);
  const Ref whole = argument(piece.array);  // number 0
  piece.array = nullptr;
  const Ref part = argument(update);
  const Ref row = number(Role::kRow, static_cast<int32_t>(place.row));
  const Ref col = number(Role::kCol, static_cast<int32_t>(place.col));
  piece.epoch = epoch_;
  piece.ref = append(TapeOp::kUpdateAt, {whole, part, row, col}, {},
                     {type.element, type.shape[0], type.shape[1]});
  piece.donor = 0;
  flush();
}

// The piece on top of a part of a row, if the part lies within it and is not the whole of it.
Piece* Recorder::piece_around(Storage& storage, const View& row, Place* place) {
  for (size_t i = storage.pieces.size(); i-- > 0;) {
    Piece& piece = storage.pieces[i];
    if (!may_overlap(piece.view, row)) continue;
    const auto found = place_within(row, piece.view);
    if (!found || covers(row, piece.view)) return nullptr;
    *place = *found;
    return &piece;
  }
  return nullptr;
}

void Recorder::write(const Tensor& tensor, std::span<const std::byte> host) {
  View view;
  Storage& storage = memory_->storage_of(tensor, &view);
  if (host.empty()) return;
  const View row = row_view(view);
  Place place;
  if (piece_around(storage, row, &place) != nullptr) {
    flush();
    Piece* piece = piece_around(storage, row, &place);
    return update_at(storage, *piece, place, executor_->upload({row.element, {1, row.cols}}, host));
  }
  replace(storage, view, executor_->upload({view.element, {view.rows, view.cols}}, host));
}

void Recorder::set_slot(const Tensor& state, int32_t from, int32_t to) {
  flush();
  View view, whole;
  Storage& storage = memory_->storage_of(state.select(to), &view);
  memory_->storage_of(state, &whole);
  if (std::ranges::none_of(storage.pieces,
                           [&](const Piece& p) { return may_overlap(p.view, whole); }))
    return;  // zeros everywhere
  const View to_row = row_view(view);
  Place to_place, from_place;
  Piece* piece = piece_around(storage, to_row, &to_place);
  if (from >= 0) {
    memory_->storage_of(state.select(from), &view);
    if (piece != piece_around(storage, row_view(view), &from_place)) piece = nullptr;
  }
  if (piece == nullptr && (storage.pieces.size() != 1 || !(storage.pieces[0].view == whole))) {
    settle({storage.base, whole});
    return set_slot(state, from, to);
  }
  if (piece == nullptr) piece = &storage.pieces[0];  // a state of one slot
  update_at(
      storage, *piece, to_place,
      from < 0 ? zeros(to_row.element, 1, to_row.cols) : slice_at(*piece, from_place, to_row));
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
      std::memcpy(packed.data() + static_cast<size_t>(i) * row, host.bytes(i * host.stride[0]),
                  row);
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
  if (storage->pieces.empty()) return zeros(state.view.element, state.view.rows, state.view.cols);
  if (!same(storage->pieces.back())) {
    return executor_->upload({state.view.element, {state.view.rows, state.view.cols}},
                             part_of(compose(*storage, state.view.element), state.view));
  }
  ArrayPtr array = array_of(storage->pieces.back());
  storage->pieces.pop_back();
  return array;
}

void Recorder::put_state(const State& state, ArrayPtr array) {
  if (Storage* storage = memory_->find(state.base)) replace(*storage, state.view, std::move(array));
}

void Recorder::lose_states(std::span<const State> states, const std::exception& failure) {
  if (failure_.empty() || !std::string_view(failure.what()).ends_with(failure_))
    failure_ = failure.what();
  for (const State& state : states) {
    put_state(state, nullptr);
    if (Storage* storage = memory_->find(state.base)) storage->pieces.back().lost = true;
  }
}

}  // namespace adder::xla
