// Snapshots of states by the tokens that led to them, for prompts that begin alike.
//
// Only states that a cold run would have too, bit for bit, belong here: see exact_alignment().
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"

namespace adder {

// The end of the chain of extend_token_hash() over these tokens.
uint64_t hash_tokens(std::span<const int32_t> tokens);

// Lengths at which a prompt may be cut without changing a bit of what follows: all of them for the
// sequential scan of Mamba-1, multiples of kSsdChunkAlign for Mamba-2.
int64_t exact_alignment(const ModelConfig& config);

// Whether tokens that were generated one by one leave the same bits as a prompt of them: where
// every length is exact.
bool decode_is_exact(const ModelConfig& config);

// A conversation's state and what belongs to it, in host memory.
struct ParkedState {
  std::vector<std::byte> state;  // StatePool::snapshot: conv and SSM of all layers, or neither
  std::vector<float> logits;     // after the last token; empty: not known
  std::vector<int32_t> tokens;   // all that are in the state, or the newest of them
  int64_t forgotten = 0;         // tokens in the state before those: known by number only
  uint64_t token_hash = 0;       // chain over all of them (core/random.h)

  int64_t length() const { return forgotten + static_cast<int64_t>(tokens.size()); }
  size_t bytes() const;
};

// tokens: the newest of the conversation's; all of them for whoever looks states up by tokens.
ParkedState park(Engine& engine, const Conversation& conversation, std::vector<int32_t> tokens);
// Takes a slot.
Conversation unpark(Engine& engine, const ParkedState& parked);

struct StateCacheStats {
  uint64_t entries = 0, bytes = 0;
  uint64_t hits = 0, misses = 0, stored = 0, evicted = 0;
};

// The least recently used snapshots go when the budget is spent. Not thread-safe.
class StateCache {
 public:
  explicit StateCache(uint64_t budget_bytes) : budget_(budget_bytes) {}

  // The longest snapshot that is a prefix of `tokens`; one of the whole only when it has logits,
  // because otherwise the last token must be processed to get them. Compares the tokens
  // themselves, not only their hash. Null: there is none. Valid until the next call of store().
  const ParkedState* find(std::span<const int32_t> tokens);
  // As find(), without counting or touching anything.
  bool contains(std::span<const int32_t> tokens) const;
  // Replaces what there is for these tokens. A snapshot larger than the budget is dropped.
  void store(ParkedState parked);
  void clear();
  StateCacheStats stats() const;

 private:
  struct Entry {
    uint64_t hash;
    ParkedState parked;
  };
  using Entries = std::list<Entry>;  // the most recently used first

  Entries::iterator lookup(std::span<const int32_t> tokens, uint64_t hash);
  void drop(Entries::iterator entry);

  uint64_t budget_, bytes_ = 0;
  Entries entries_;
  std::unordered_multimap<uint64_t, Entries::iterator> by_hash_;
  std::map<int64_t, int64_t, std::greater<>> lengths_;  // how many entries have this length
  StateCacheStats counts_;
};

}  // namespace adder
