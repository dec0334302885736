#include "text/string_table.h"

#include <cstring>

#include "core/error.h"

namespace adder {

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
  uint64_t hash = bytes.size() * kMultiplier;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t taken = bytes.size() < 8 ? bytes.size() : 8;
    std::memcpy(&word, bytes.data(), taken);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
    bytes.remove_prefix(taken);
  }
  return hash * kMultiplier;
}

size_t StringTable::slot_of(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = (hash_bytes(wanted) >> 32) & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] < 0 || text(slots_[slot]) == wanted) return slot;
  }
}

std::string_view StringTable::text(int32_t id) const {
  if (!has(id)) return {};
  const Span span = spans_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(span.begin, span.length);
}

std::optional<int32_t> StringTable::find(std::string_view wanted) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[slot_of(wanted)];
  return id < 0 ? std::nullopt : std::optional(id);
}

void StringTable::grow() {
  std::vector<int32_t> old(slots_.empty() ? 64 : slots_.size() * 2, -1);
  old.swap(slots_);
  for (const int32_t id : old) {
    if (id >= 0) slots_[slot_of(text(id))] = id;
  }
}

StringTable::Span StringTable::append(std::string_view added) {
  ADDER_CHECK(bytes_.size() + added.size() < kAbsent, "vocabulary: more than 4 GiB of text");
  const Span span{static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(added.size())};
  bytes_.append(added);
  return span;
}

bool StringTable::insert(int32_t id, std::string_view added) {
  if (has(id)) return false;
  if (static_cast<size_t>(count_ + 1) * 4 > slots_.size() * 3) grow();
  const size_t slot = slot_of(added);
  if (slots_[slot] >= 0) return false;
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = append(added);
  slots_[slot] = id;
  ++count_;
  return true;
}

void StringTable::set_unlisted(int32_t id, std::string_view added) {
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = append(added);
}

void StringTable::shrink_to_fit() {
  bytes_.shrink_to_fit();
  spans_.shrink_to_fit();
}

}  // namespace adder
