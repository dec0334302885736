// Byte pair encoding of one word: merge the pair of lowest rank, leftmost first, until none is
// left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/string_table.h"

namespace adder {

// (left id, right id) -> rank and merged id: a hash table of 16 bytes an entry.
class MergeTable {
 public:
  struct Entry {
    uint32_t left, right, rank, merged;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  void reserve(size_t merges);
  // A later merge of the same pair replaces the earlier one, as in Hugging Face's reader.
  void insert(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  // Null when the pair does not merge.
  const Entry* find(int32_t left, int32_t right) const;
  size_t size() const { return count_; }

 private:
  size_t slot_of(uint32_t left, uint32_t right) const;
  void rehash(size_t slots);

  std::vector<Entry> slots_;  // a power of two, at most 3/4 full; rank == kNoRank is empty
  size_t count_ = 0;
  int shift_ = 64;  // 64 - log2(slots)
};

struct BpeOptions {
  bool bytes = false;          // symbols are bytes; otherwise characters
  bool byte_fallback = false;  // a character without a token becomes tokens "<0xNN>"
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool fuse_unk = false;       // neighbouring unknown symbols become one unknown token
  int32_t unk_id = -1;
};

// Immutable once built; encode() may run in several threads.
class Bpe {
 public:
  // Buffers of one call of encode after another.
  struct Scratch {
    std::vector<int32_t> symbols;
    std::vector<uint32_t> links;  // next and previous of each symbol
    std::vector<uint64_t> heap;
  };

  Bpe() = default;
  // The vocabulary holds bytes (options.bytes) or UTF-8, and must outlive the object.
  Bpe(const StringTable* vocabulary, MergeTable merges, const BpeOptions& options);

  // For vocabularies whose byte tokens are not spelled "<0xNN>" among the texts.
  void set_byte_ids(const std::array<int32_t, 256>& ids) { byte_ids_ = ids; }

  // Appends the ids of a word. Bytes that no token can express become the unknown token, else
  // U+FFFD, else nothing. O(n log n).
  void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const;

  // The token of one byte, -1 when there is none.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

 private:
  void split_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
  void split_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  size_t merge_short(int32_t* symbols, size_t count) const;
  void merge_long(std::vector<int32_t>& ids, Scratch& scratch) const;

  const StringTable* vocabulary_ = nullptr;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<int32_t> replacement_ids_;  // symbols of U+FFFD, for bytes without a token
};

}  // namespace adder
