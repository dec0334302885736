#include "backends/xla/recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/xla/lower.h"
#include "core/error.h"

namespace adder::xla {
namespace {

// A step of a model with a hundred layers has about 50,000 words.
constexpr size_t kLongTape = size_t{1} << 20;
constexpr size_t kManyPieces = 12;  // of a buffer

int64_t key_hash(int64_t seed, std::span<const int64_t> words) {
  auto hash = static_cast<uint64_t>(seed);
  for (const int64_t word : words) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return static_cast<int64_t>(hash);
}

std::span<const std::byte> bytes_of(std::span<const int32_t> values) {
  return std::as_bytes(values);
}

}  // namespace

int64_t bucket(int64_t n) {
  if (n <= 1) return n;
  if (n <= 4) return 4;
  return std::max<int64_t>(16, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))));
}

Recorder::Recorder(std::unique_ptr<Executor> executor)
    : executor_(std::move(executor)), memory_(std::make_shared<Memory>()) {}

// Buffers may be freed later than this, but their arrays belong to the executor.
Recorder::~Recorder() {
  memory_->forget_values();
}

Ref Recorder::append_results(TapeOp op, std::span<const int64_t> operands,
                             std::span<const int64_t> attributes, std::span<const Shape2> shapes) {
  shapes_.insert(shapes_.end(), shapes.begin(), shapes.end());
  return tape_.append(op, operands, attributes, std::ssize(shapes));
}

Ref Recorder::append(TapeOp op, std::initializer_list<int64_t> operands,
                     std::span<const int64_t> attributes, Shape2 shape) {
  shapes_.push_back(shape);
  return tape_.append(op, {operands.begin(), operands.size()}, attributes);
}

Ref Recorder::append(TapeOp op, std::initializer_list<int64_t> operands,
                     std::initializer_list<int64_t> attributes, Shape2 shape) {
  return append(op, operands, std::span(attributes.begin(), attributes.size()), shape);
}

Ref Recorder::argument(const Type& type, ArrayPtr array) {
  int64_t attributes[1 + Tensor::kMaxRank] = {static_cast<int64_t>(type.element)};
  const size_t rank = type.shape.size();
  std::copy(type.shape.begin(), type.shape.end(), attributes + 1);
  arguments_.push_back(std::move(array));
  return append(TapeOp::kArgument, {}, std::span<const int64_t>(attributes, 1 + rank),
                {type.element, rank > 0 ? type.shape[0] : 1, rank > 1 ? type.shape[1] : 1});
}

Ref Recorder::argument(const ArrayPtr& array) {
  return argument(array->type(), array);
}

Ref Recorder::numbers(Role role, Element element, std::span<const std::byte> bytes, bool scalar) {
  SmallRing& ring = small_[static_cast<size_t>(role)];
  Small* small = nullptr;
  for (Small& s : ring.entries)
    if (s.array != nullptr && std::ranges::equal(s.bytes, bytes)) small = &s;
  if (small != nullptr && small->epoch == epoch_) return small->ref;
  if (small == nullptr) {
    ArrayPtr array = executor_->upload_as(small_type(ring, element, bytes.size(), scalar), bytes);
    small = &ring.entries[ring.oldest++ % ring.entries.size()];
    small->array = std::move(array);
    for (Small& s : ring.entries) s.bytes.reserve(bytes.size());  // whichever is the next one
    small->bytes.assign(bytes.begin(), bytes.end());
  }
  small->epoch = epoch_;
  return small->ref = argument(small->array);
}

// Those of a role have one element type, and differ in their lengths at most.
const TypePtr& Recorder::small_type(SmallRing& ring, Element element, size_t bytes, bool scalar) {
  for (const TypePtr& type : ring.types)
    if (type->bytes() == bytes) return type;
  Type type{element, {}};
  if (!scalar) type.shape = {static_cast<int64_t>(bytes / element_bytes(element))};
  return ring.types.emplace_back(std::make_shared<const Type>(std::move(type)));
}

std::optional<Recorder::Role> Recorder::role_of(const Array& array) const {
  for (size_t role = 0; role < small_.size(); ++role)
    for (const Small& s : small_[role].entries)
      if (s.array.get() == &array) return static_cast<Role>(role);
  return std::nullopt;
}

Ref Recorder::indices(Role role, std::span<const int32_t> values, int64_t length, int32_t filler) {
  padded_.assign(values.begin(), values.end());
  padded_.resize(static_cast<size_t>(length), filler);
  return numbers(role, Element::kI32, bytes_of(padded_));
}

Ref Recorder::number(Role role, int32_t value) {
  return numbers(role, Element::kI32, bytes_of({&value, 1}), true);
}

Ref Recorder::piece_ref(Piece& piece) {
  if (piece.epoch != epoch_) {
    piece.epoch = epoch_;
    piece.argument = static_cast<int32_t>(arguments_.size());
    piece.ref = argument(array_of(piece));
  }
  return piece.ref;
}

void Recorder::touch(Storage& storage) {
  if (storage.dirty) return;
  storage.dirty = true;
  dirty_.push_back(storage.base);
  if (capturing_) saved_.push_back({storage.base, storage.pieces});
}

ArrayPtr Recorder::zeros(Element element, int64_t rows, int64_t cols) {
  const Type type{element, {rows, cols}};
  return executor_->upload(type, std::vector<std::byte>(type.bytes()));
}

Executable& Recorder::compiled() {
  // The tape, what of it is wanted, and which arguments give their memory.
  std::vector<int64_t>& tail = key_tail_;
  tail.assign(outputs_.begin(), outputs_.end());
  tail.insert(tail.end(), donated_.begin(), donated_.end());
  tail.push_back(std::ssize(outputs_));
  const int64_t hash = key_hash(tape_.hash(), tail);
  const auto words = tape_.words();
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const std::vector<int64_t>& key = it->second.key;
    if (key.size() == words.size() + tail.size() &&
        std::equal(words.begin(), words.end(), key.begin()) &&
        std::equal(tail.begin(), tail.end(), key.begin() + std::ssize(words)))
      return *it->second.executable;
  }
  Compiled made{{words.begin(), words.end()}, nullptr};
  made.key.insert(made.key.end(), tail.begin(), tail.end());
  made.executable = executor_->compile(lower_program(words, outputs_, donated_));
  return *programs_.emplace(hash, std::move(made))->second.executable;
}

Executable& Recorder::executable(std::vector<int64_t> key, const std::function<Program()>& make) {
  const int64_t hash = key_hash(0, key);
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second.key == key) return *it->second.executable;
  Compiled made{std::move(key), executor_->compile(make())};
  return *programs_.emplace(hash, std::move(made))->second.executable;
}

void Recorder::synchronize() {
  flush();
  const ArrayPtr newest = newest_.lock();
  if (newest == nullptr) return;
  std::vector<std::byte> bytes(newest->type().bytes());
  download(*newest, bytes, last_program());
}

void Recorder::download(Array& array, std::span<std::byte> bytes, uint64_t made) {
  try {
    executor_->download(array, bytes);
    confirmed_ = std::max(confirmed_, made);
  } catch (const std::exception& failure) {
    failure_ = failure.what();
    memory_->lose_made_after(confirmed_);
    throw;
  }
}

void Recorder::end_program() {
  ++epoch_;
  tape_.clear();
  shapes_.clear();
  arguments_.clear();
  dirty_.clear();
  results_.clear();
}

ArrayPtr Recorder::flush(Ref wanted) {
  if (capturing_)
    fail(ErrorCode::kInternal, "xla: a step that is recorded for a loop asked for a value");
  written_.clear();
  outputs_.clear();
  donated_.clear();
  if (wanted != kNoRef) {
    outputs_.push_back(wanted);
    donated_.push_back(-1);
  }
  for (const uintptr_t base : dirty_) {
    Storage* storage = memory_->find(base);
    if (storage == nullptr) continue;  // freed before anybody read it
    storage->dirty = false;
    for (Piece& piece : storage->pieces) {
      if (piece.array != nullptr || piece.lost) continue;
      written_.push_back(&piece);
      outputs_.push_back(piece.ref);
      const int32_t donor = piece.donor;
      // A donated array must be nobody else's.
      const bool free = donor >= 0 && arguments_[static_cast<size_t>(donor)].use_count() == 1 &&
                        std::ranges::find(donated_, donor) == donated_.end();
      donated_.push_back(free ? donor : -1);
    }
  }
  try {
    if (!outputs_.empty()) compiled().run_into(arguments_, results_);
  } catch (const std::exception& failure) {
    failure_ = failure.what();
    for (Piece* piece : written_) piece->lost = true;
    end_program();
    throw;
  }
  const size_t first = wanted != kNoRef ? 1 : 0;  // of the buffers'
  for (size_t i = 0; i < written_.size(); ++i) {
    written_[i]->array = results_[first + i];
    written_[i]->made = epoch_;
    written_[i]->donor = -1;
  }
  for (const ArrayPtr& array : results_) {
    const ArrayPtr smallest = newest_.lock();
    if (&array == &results_.front() || array->type().bytes() < smallest->type().bytes())
      newest_ = array;
  }
  ArrayPtr result = first > 0 ? results_.front() : nullptr;
  run_ = dirty_;
  end_program();
  // Shorter and shorter prompts leave the ends of longer ones behind.
  for (const uintptr_t base : run_) {
    Storage* storage = memory_->find(base);
    if (storage != nullptr && storage->pieces.size() > kManyPieces)
      settle({base, storage->pieces.back().view});
  }
  return result;
}

void Recorder::flush_if_long() {
  if (!capturing_ && tape_.words().size() > kLongTape) flush();
}

void Recorder::begin_step() {
  if (!capturing_ && tape_.size() > 0) flush();
}

}  // namespace adder::xla
