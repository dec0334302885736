#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/error.h"
#include "text/unicode.h"

namespace adder {

void MergeTable::reserve(size_t merges) {
  rehash(std::bit_ceil(merges * 4 / 3 + 16));
}

void MergeTable::rehash(size_t slots) {
  if (slots <= slots_.size()) return;
  std::vector<Entry> old(slots, Entry{0, 0, kNoRank, 0});
  old.swap(slots_);
  shift_ = 64 - std::countr_zero(slots);
  for (const Entry& entry : old) {
    if (entry.rank != kNoRank) slots_[slot_of(entry.left, entry.right)] = entry;
  }
}

size_t MergeTable::slot_of(uint32_t left, uint32_t right) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
  // Fibonacci hashing after folding the halves: neighbours in both ids are spread.
  size_t slot = ((key ^ key >> 29) * 0x9e3779b97f4a7c15u) >> shift_;
  for (;; slot = (slot + 1) & mask) {
    const Entry& entry = slots_[slot];
    if (entry.rank == kNoRank || (entry.left == left && entry.right == right)) return slot;
  }
}

void MergeTable::insert(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  if ((count_ + 1) * 4 > slots_.size() * 3) rehash(std::bit_ceil(slots_.size() + 16) * 2);
  Entry& entry = slots_[slot_of(static_cast<uint32_t>(left), static_cast<uint32_t>(right))];
  if (entry.rank == kNoRank) ++count_;
  entry = {static_cast<uint32_t>(left), static_cast<uint32_t>(right), rank,
           static_cast<uint32_t>(merged)};
}

const MergeTable::Entry* MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const Entry& entry = slots_[slot_of(static_cast<uint32_t>(left), static_cast<uint32_t>(right))];
  return entry.rank == kNoRank ? nullptr : &entry;
}

namespace {

// Symbols are appended through this, so that runs of unknown ones can be fused.
class SymbolWriter {
 public:
  SymbolWriter(std::vector<int32_t>& symbols, bool fuse, int32_t unk_id)
      : symbols_(symbols), fuse_(fuse), unk_id_(unk_id) {}
  void push(int32_t id) {
    symbols_.push_back(id);
    after_unknown_ = false;
  }
  void push_unknown() {
    if (!(fuse_ && after_unknown_)) symbols_.push_back(unk_id_);
    after_unknown_ = true;
  }

 private:
  std::vector<int32_t>& symbols_;
  bool fuse_, after_unknown_ = false;
  int32_t unk_id_;
};

}  // namespace

Bpe::Bpe(const StringTable* vocabulary, MergeTable merges, const BpeOptions& options)
    : vocabulary_(vocabulary), merges_(std::move(merges)), options_(options) {
  byte_ids_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (options.bytes) {
      byte_ids_[static_cast<size_t>(byte)] = vocabulary->find({&c, 1}).value_or(-1);
    } else if (options.byte_fallback) {
      byte_ids_[static_cast<size_t>(byte)] =
          vocabulary->find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    }
  }
  if (options.unk_id < 0) {
    if (options.bytes) {
      for (const char c : kReplacementCharacter) {
        const int32_t id = byte_id(static_cast<uint8_t>(c));
        if (id >= 0) replacement_ids_.push_back(id);
      }
      if (replacement_ids_.size() != kReplacementCharacter.size()) replacement_ids_.clear();
    } else if (const auto id = vocabulary->find(kReplacementCharacter)) {
      replacement_ids_ = {*id};
    }
  }
}

void Bpe::split_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  SymbolWriter writer(symbols, options_.fuse_unk, options_.unk_id);
  for (const char c : word) {
    const int32_t id = byte_id(static_cast<uint8_t>(c));
    if (id >= 0) {
      writer.push(id);
    } else if (options_.unk_id >= 0) {
      writer.push_unknown();
    } else {
      for (const int32_t replacement : replacement_ids_) writer.push(replacement);
    }
  }
}

void Bpe::split_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  SymbolWriter writer(symbols, options_.fuse_unk, options_.unk_id);
  for (size_t position = 0; position < word.size();) {
    const Utf8Part part = next_utf8(word, position);
    const std::string_view character = word.substr(position, part.length);
    position += part.length;
    if (part.kind == Utf8Kind::kValid) {
      if (const auto id = vocabulary_->find(character)) {
        writer.push(*id);
        continue;
      }
    }
    const bool all_bytes = std::all_of(character.begin(), character.end(), [this](char c) {
      return byte_id(static_cast<uint8_t>(c)) >= 0;
    });
    if (all_bytes) {
      for (const char c : character) writer.push(byte_id(static_cast<uint8_t>(c)));
    } else if (options_.unk_id >= 0) {
      writer.push_unknown();
    } else if (part.kind != Utf8Kind::kValid) {
      for (const int32_t replacement : replacement_ids_) writer.push(replacement);
    }
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  scratch.symbols.clear();
  if (options_.bytes) {
    split_bytes(word, scratch.symbols);
  } else {
    split_characters(word, scratch.symbols);
  }
  // Scanning for the best pair costs n^2 / 2 steps, but with less overhead than a heap.
  constexpr size_t kLongestScan = 40;
  if (scratch.symbols.size() <= kLongestScan) {
    const size_t count = merge_short(scratch.symbols.data(), scratch.symbols.size());
    ids.insert(ids.end(), scratch.symbols.begin(),
               scratch.symbols.begin() + static_cast<std::ptrdiff_t>(count));
  } else {
    merge_long(ids, scratch);
  }
}

size_t Bpe::merge_short(int32_t* symbols, size_t count) const {
  const MergeTable::Entry* pairs[64];  // pairs[i] merges symbols i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = count;
    uint32_t best_rank = MergeTable::kNoRank;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < best_rank) {
        best = i;
        best_rank = pairs[i]->rank;
      }
    }
    if (best == count) break;
    symbols[best] = static_cast<int32_t>(pairs[best]->merged);
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    --count;
    if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  return count;
}

void Bpe::merge_long(std::vector<int32_t>& ids, Scratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  const size_t count = symbols.size();
  ADDER_CHECK(count < UINT32_MAX, "text: one word has more than 2^32 symbols");
  // A doubly linked list: next in links[2 i], previous in links[2 i + 1]; `count` ends both.
  const auto end = static_cast<uint32_t>(count);
  std::vector<uint32_t>& links = scratch.links;
  links.resize(2 * count);
  for (size_t i = 0; i < count; ++i) {
    links[2 * i] = static_cast<uint32_t>(i + 1);
    links[2 * i + 1] = i == 0 ? end : static_cast<uint32_t>(i - 1);
  }
  // Keys sort by rank, then by position. An entry is stale when its pair no longer has its rank.
  heap.clear();
  const auto key_of = [&](uint32_t left) -> std::optional<uint64_t> {
    const uint32_t right = links[2 * left];
    if (right == end) return std::nullopt;
    const auto* entry = merges_.find(symbols[left], symbols[right]);
    if (entry == nullptr) return std::nullopt;
    return static_cast<uint64_t>(entry->rank) << 32 | left;
  };
  for (uint32_t i = 0; i < end; ++i) {
    if (const auto key = key_of(i)) heap.push_back(*key);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t left) {
    if (const auto key = key_of(left)) {
      heap.push_back(*key);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  constexpr int32_t kGone = -1;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t key = heap.back();
    heap.pop_back();
    const auto left = static_cast<uint32_t>(key);
    if (symbols[left] == kGone || links[2 * left] == end) continue;
    const uint32_t right = links[2 * left];
    const auto* entry = merges_.find(symbols[left], symbols[right]);
    if (entry == nullptr || entry->rank != static_cast<uint32_t>(key >> 32)) continue;
    symbols[left] = static_cast<int32_t>(entry->merged);
    symbols[right] = kGone;
    const uint32_t after = links[2 * right];
    links[2 * left] = after;
    if (after != end) links[2 * after + 1] = left;
    if (links[2 * left + 1] != end) push(links[2 * left + 1]);
    push(left);
  }
  for (const int32_t symbol : symbols) {
    if (symbol != kGone) ids.push_back(symbol);
  }
}

}  // namespace adder
