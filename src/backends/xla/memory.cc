#include "backends/xla/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "core/error.h"

namespace adder::xla {
namespace {

constexpr size_t kMemoryPage = 4096;

size_t whole_pages(size_t bytes) {
  return std::max<size_t>(1, (bytes + kMemoryPage - 1) / kMemoryPage) * kMemoryPage;
}

View view_of(const Tensor& t, int64_t offset) {
  View v;
  v.element = element_of(t.dtype);
  v.offset = offset;
  int axis = 0;
  if (t.rank >= 2) {
    v.rows = t.dim(0);
    v.row_stride = v.rows == 1 ? 0 : t.stride[0];
    axis = 1;
  }
  for (; axis < t.rank; ++axis) {
    const int64_t dim = t.dim(axis), stride = t.stride[static_cast<size_t>(axis)];
    v.cols *= dim;
    if (dim == 1) continue;
    if (v.inner_rank > 0) {
      const auto last = static_cast<size_t>(v.inner_rank - 1);
      if (v.inner_stride[last] == dim * stride) {
        v.inner[last] *= dim;
        v.inner_stride[last] = stride;
        continue;
      }
    }
    const auto next = static_cast<size_t>(v.inner_rank++);
    v.inner[next] = dim;
    v.inner_stride[next] = stride;
  }
  return v;
}

}  // namespace

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Element::kF32;
    case DType::kF16:
      return Element::kF16;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kI8:
      return Element::kI8;
    case DType::kI32:
      return Element::kI32;
    default:
      fail(ErrorCode::kUnsupported, "xla: expected F32, F16 or BF16, got {}: use --device cpu",
           dtype_name(dtype));
  }
}

int64_t View::end() const {
  int64_t last = offset + (rows - 1) * row_stride;
  for (size_t i = 0; i < static_cast<size_t>(inner_rank); ++i)
    last += (inner[i] - 1) * inner_stride[i];
  return size() == 0 ? offset : last + 1;
}

std::optional<Place> place_within(const View& part, const View& whole) {
  if (part.element != whole.element || !part.dense_rows() || !whole.dense_rows())
    return std::nullopt;
  const int64_t distance = part.offset - whole.offset;
  if (distance < 0) return std::nullopt;
  Place place{0, distance};
  if (whole.rows > 1) {
    if (whole.row_stride < whole.cols || (part.rows > 1 && part.row_stride != whole.row_stride))
      return std::nullopt;
    place = {distance / whole.row_stride, distance % whole.row_stride};
  } else if (part.rows > 1) {
    return std::nullopt;
  }
  if (place.row + part.rows > whole.rows || place.col + part.cols > whole.cols) return std::nullopt;
  return place;
}

bool covers(const View& whole, const View& part) {
  if (whole == part || place_within(part, whole)) return true;
  return whole.element == part.element && whole.dense() && part.offset >= whole.offset &&
         part.end() <= whole.end();
}

bool may_overlap(const View& a, const View& b) {
  const auto bytes = [](const View& v, int64_t at) {
    return at * static_cast<int64_t>(element_bytes(v.element));
  };
  if (bytes(a, a.end()) <= bytes(b, b.offset) || bytes(b, b.end()) <= bytes(a, a.offset))
    return false;
  // Columns of one matrix lie beside each other.
  if (a.element == b.element && a.dense_rows() && b.dense_rows() && a.rows > 1 && b.rows > 1 &&
      a.row_stride == b.row_stride && a.row_stride > 0) {
    const View &first = a.offset <= b.offset ? a : b, &second = a.offset <= b.offset ? b : a;
    const int64_t col = (second.offset - first.offset) % a.row_stride;
    return col < first.cols || col + second.cols > a.row_stride;
  }
  return true;
}

// At the front of a buffer's pages, the only one that is memory.
struct Memory::Header {
  std::shared_ptr<Memory> memory;
};

Buffer Memory::allocate(size_t bytes) {
  const size_t length = kMemoryPage + whole_pages(bytes);
  void* pages =
      ::mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED || ::mprotect(pages, kMemoryPage, PROT_READ | PROT_WRITE) != 0)
    fail(ErrorCode::kIo, "out of address space: {} bytes were refused", bytes);
  new (pages) Header{shared_from_this()};
  auto* data = static_cast<std::byte*>(pages) + kMemoryPage;
  const auto base = reinterpret_cast<uintptr_t>(data);
  storages_[base] = Storage{base, bytes, {}, false};
  return Buffer(data, bytes, &Memory::release);
}

void Memory::release(void* data, size_t bytes) {
  std::byte* pages = static_cast<std::byte*>(data) - kMemoryPage;
  auto* header = std::launder(reinterpret_cast<Header*>(pages));
  const std::shared_ptr<Memory> memory = std::move(header->memory);
  header->~Header();
  memory->storages_.erase(reinterpret_cast<uintptr_t>(data));
  ::munmap(pages, kMemoryPage + whole_pages(bytes));
}

Storage* Memory::find(uintptr_t base) {
  const auto found = storages_.find(base);
  return found == storages_.end() ? nullptr : &found->second;
}

std::optional<uintptr_t> Memory::address_of(const Array& array) const {
  for (const auto& [base, storage] : storages_)
    for (const Piece& piece : storage.pieces)
      if (piece.array.get() == &array)
        return base + static_cast<uintptr_t>(piece.view.offset) * element_bytes(piece.view.element);
  return std::nullopt;
}

void Memory::forget_values() {
  for (auto& [base, storage] : storages_) storage.pieces.clear();
}

void Memory::lose_made_after(uint64_t epoch) {
  for (auto& [base, storage] : storages_) {
    for (Piece& piece : storage.pieces) {
      if (piece.made <= epoch) continue;
      piece.lost = true;
      piece.array = nullptr;
    }
  }
}

bool Memory::contains(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto next = storages_.upper_bound(address);
  if (next == storages_.begin()) return false;
  const Storage& storage = std::prev(next)->second;
  return address < storage.base + storage.bytes;
}

Storage& Memory::storage_of(const Tensor& tensor, View* view) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  auto next = storages_.upper_bound(address);
  ADDER_CHECK(next != storages_.begin(),
              "xla: expected memory of this backend, got that of another");
  Storage& storage = std::prev(next)->second;
  const auto distance = static_cast<int64_t>(address - storage.base);
  const auto width = static_cast<int64_t>(dtype_size(tensor.dtype));
  ADDER_CHECK(address <= storage.base + storage.bytes && width > 0 && distance % width == 0,
              "xla: expected memory of this backend, got that of another");
  *view = view_of(tensor, tensor.offset + distance / width);
  ADDER_CHECK(view->size() == 0 ||
                  (view->offset >= 0 && view->end() * width <= static_cast<int64_t>(storage.bytes)),
              "xla: expected a tensor within its buffer of {} bytes, got {}", storage.bytes,
              tensor.describe());
  return storage;
}

}  // namespace adder::xla
