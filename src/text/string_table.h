// Strings with ids, found both ways: a vocabulary in about 16 bytes a token plus the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

class StringTable {
 public:
  // Adds `text` under `id` >= 0. False when the text or the id is there already.
  bool insert(int32_t id, std::string_view text);
  // Gives `id` a text that find() does not see; replaces what the id had.
  void set_unlisted(int32_t id, std::string_view text);

  std::optional<int32_t> find(std::string_view text) const;
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() &&
           spans_[static_cast<size_t>(id)].begin != kAbsent;
  }
  // Empty for an id that has none. Valid until the next change.
  std::string_view text(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(spans_.size()); }  // largest id + 1
  int32_t count() const { return count_; }
  void shrink_to_fit();

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Span {
    uint32_t begin = kAbsent, length = 0;
  };

  size_t slot_of(std::string_view text) const;  // of the text, or the empty one where it belongs
  void grow();
  Span append(std::string_view text);

  std::string bytes_;
  std::vector<Span> spans_;     // by id
  std::vector<int32_t> slots_;  // hash table: ids, -1 = empty; a power of two, at most 3/4 full
  int32_t count_ = 0;           // listed strings
};

// 64-bit hash of bytes, good in its high bits.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace adder
