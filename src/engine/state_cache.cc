#include "engine/state_cache.h"

#include <algorithm>
#include <utility>

#include "core/random.h"
#include "kernels/ssd_scan.h"

namespace adder {
namespace {

constexpr size_t kEntryBytes = 256;  // of the lists and maps, about

}  // namespace

uint64_t hash_tokens(std::span<const int32_t> tokens) {
  uint64_t hash = 0;
  for (const int32_t token : tokens) hash = extend_token_hash(hash, token);
  return hash;
}

int64_t exact_alignment(const ModelConfig& config) {
  return config.mixer == MixerKind::kMamba1 ? 1 : kSsdChunkAlign;
}

bool decode_is_exact(const ModelConfig& config) {
  return exact_alignment(config) == 1;
}

size_t ParkedState::bytes() const {
  return state.size() + logits.size() * sizeof(float) + tokens.size() * sizeof(int32_t) +
         kEntryBytes;
}

ParkedState park(Engine& engine, const Conversation& c, std::vector<int32_t> tokens) {
  ParkedState parked;
  parked.state.resize(engine.states().snapshot_bytes());
  engine.states().snapshot(c.state, parked.state);
  parked.logits = c.logits;
  parked.forgotten = c.length - static_cast<int64_t>(tokens.size());
  parked.tokens = std::move(tokens);
  parked.token_hash = c.token_hash;
  return parked;
}

Conversation unpark(Engine& engine, const ParkedState& parked) {
  Conversation c;
  c.state = engine.states().acquire();
  engine.states().restore(c.state, parked.state);
  c.length = parked.length();
  c.token_hash = parked.token_hash;
  const size_t keep = std::min(parked.tokens.size(), kRecentTokens);
  c.recent.assign(parked.tokens.end() - static_cast<int64_t>(keep), parked.tokens.end());
  c.logits = parked.logits;
  return c;
}

StateCache::Entries::iterator StateCache::lookup(std::span<const int32_t> tokens, uint64_t hash) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (std::ranges::equal(it->second->parked.tokens, tokens)) return it->second;
  }
  return entries_.end();
}

const ParkedState* StateCache::find(std::span<const int32_t> tokens) {
  std::vector<uint64_t> hashes(tokens.size() + 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    hashes[i + 1] = extend_token_hash(hashes[i], tokens[i]);
  }
  const auto size = static_cast<int64_t>(tokens.size());
  for (auto length = lengths_.lower_bound(size); length != lengths_.end(); ++length) {
    const auto count = static_cast<size_t>(length->first);
    const auto entry = lookup(tokens.first(count), hashes[count]);
    if (entry == entries_.end()) continue;
    if (length->first == size && entry->parked.logits.empty()) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    ++counts_.hits;
    return &entry->parked;
  }
  ++counts_.misses;
  return nullptr;
}

bool StateCache::contains(std::span<const int32_t> tokens) const {
  const auto [first, last] = by_hash_.equal_range(hash_tokens(tokens));
  return std::any_of(first, last, [&](const auto& item) {
    return std::ranges::equal(item.second->parked.tokens, tokens);
  });
}

void StateCache::drop(Entries::iterator entry) {
  const auto [first, last] = by_hash_.equal_range(entry->hash);
  for (auto it = first; it != last; ++it) {
    if (it->second == entry) {
      by_hash_.erase(it);
      break;
    }
  }
  const auto length = lengths_.find(static_cast<int64_t>(entry->parked.tokens.size()));
  if (--length->second == 0) lengths_.erase(length);
  bytes_ -= entry->parked.bytes();
  entries_.erase(entry);
}

void StateCache::store(ParkedState parked) {
  const uint64_t hash = hash_tokens(parked.tokens);
  if (const auto old = lookup(parked.tokens, hash); old != entries_.end()) drop(old);
  const size_t bytes = parked.bytes();
  if (bytes > budget_) return;
  while (bytes_ + bytes > budget_) {
    drop(std::prev(entries_.end()));
    ++counts_.evicted;
  }
  ++lengths_[static_cast<int64_t>(parked.tokens.size())];
  bytes_ += bytes;
  entries_.push_front({hash, std::move(parked)});
  by_hash_.emplace(hash, entries_.begin());
  ++counts_.stored;
}

void StateCache::clear() {
  counts_.evicted += entries_.size();
  entries_.clear();
  by_hash_.clear();
  lengths_.clear();
  bytes_ = 0;
}

StateCacheStats StateCache::stats() const {
  StateCacheStats s = counts_;
  s.entries = entries_.size();
  s.bytes = bytes_;
  return s;
}

}  // namespace adder
