#include "engine/token_mask.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "engine/grammar_states.h"
#include "io/printable.h"

namespace adder {

// What matchers found out about one grammar. Only ever grows.
struct GrammarMatcher::Cache {
  explicit Cache(std::shared_ptr<const Grammar> grammar) : states(std::move(grammar)) {}

  std::mutex mutex;
  GrammarStates states;
  std::unordered_map<GrammarStates::Id, std::shared_ptr<const TokenSet>> masks;
};

// All copies of a matcher. When a cache is full, each of them moves to the next one with its next
// token.
struct GrammarMatcher::Family {
  std::mutex mutex;
  std::shared_ptr<Cache> newest;

  std::shared_ptr<Cache> after(const std::shared_ptr<Cache>& full) {
    const std::lock_guard lock(mutex);
    if (newest == full) newest = std::make_shared<Cache>(full->states.grammar());
    return newest;
  }
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      family_(std::make_shared<Family>()),
      cache_(std::make_shared<Cache>(std::move(grammar))) {
  family_->newest = cache_;
  enter(cache_->states.start());
}

// The caller holds the lock of the cache.
void GrammarMatcher::enter(uint32_t state) {
  state_ = state;
  can_end_ = cache_->states.can_end(state);
  must_end_ = cache_->states.must_end(state);
}

void GrammarMatcher::accept(int32_t token) {
  const std::string_view bytes = vocabulary_->bytes(token);
  const std::shared_ptr<Cache> cache = cache_;  // outlives the lock
  const std::lock_guard lock(cache->mutex);
  GrammarStates& states = cache->states;
  states.begin_work();
  GrammarStates::Id state = bytes.empty() ? GrammarStates::kDead : state_;
  for (const char byte : bytes) state = states.next(state, static_cast<uint8_t>(byte));
  ADDER_CHECK(state != GrammarStates::kDead, "grammar: token {}, {}, cannot come here", token,
              printable(bytes));
  if (states.memory() <= kMaxMemory) {
    enter(state);
    return;
  }
  cache_ = family_->after(cache);
  const std::lock_guard next_lock(cache_->mutex);
  enter(cache_->states.adopt(states, state));
}

// The caller holds the lock. Walks the tree of tokens and the states together: where no text goes
// on, everything below is skipped.
GrammarMatcher::TokenSet GrammarMatcher::find_allowed() const {
  TokenSet set;
  set.bits.resize((static_cast<size_t>(vocabulary_->size()) + 63) / 64);
  GrammarStates* states = &cache_->states;
  states->begin_work();
  // A grammar that needs a state for every token would fill what is shared: such a walk goes on in
  // memory of its own.
  std::unique_ptr<GrammarStates> own;
  std::vector<GrammarStates::Id> path(vocabulary_->max_depth() + 1);
  std::vector<uint8_t> path_bytes(path.size());
  path[0] = state_;
  const auto nodes = vocabulary_->nodes();
  size_t visited = 0;
  for (size_t i = 0; i < nodes.size();) {
    const TokenVocabulary::Node& node = nodes[i];
    if (++visited % 64 == 0 && states->memory() > kMaxMemory) {
      auto fresh = std::make_unique<GrammarStates>(states->grammar());
      path[0] = fresh->adopt(*states, path[0]);
      for (uint32_t d = 1; d < node.depth; ++d) path[d] = fresh->next(path[d - 1], path_bytes[d]);
      own = std::move(fresh);
      states = own.get();
    }
    const GrammarStates::Id state = states->next(path[node.depth - 1], node.byte);
    if (state == GrammarStates::kDead) {
      i = node.end;
      continue;
    }
    path[node.depth] = state;
    path_bytes[node.depth] = node.byte;
    for (int32_t id = node.token; id != TokenVocabulary::kNone; id = vocabulary_->next_equal(id)) {
      set.bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
      set.any = true;
    }
    ++i;
  }
  return set;
}

std::shared_ptr<const GrammarMatcher::TokenSet> GrammarMatcher::allowed() const {
  const std::lock_guard lock(cache_->mutex);
  auto& masks = cache_->masks;
  if (const auto known = masks.find(state_); known != masks.end()) return known->second;
  auto found = std::make_shared<const TokenSet>(find_allowed());
  const size_t most = kMaxMemory / (found->bits.size() * sizeof(uint64_t) + 128);
  if (masks.size() >= most) masks.clear();
  masks.emplace(state_, found);
  return found;
}

bool GrammarMatcher::mask(std::span<float> logits, std::span<const int32_t> end_ids) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<size_t, float>> ends;  // and their logits
  for (const int32_t id : end_ids) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    const auto i = static_cast<size_t>(id);
    ends.emplace_back(i, can_end_ ? logits[i] : kNever);
  }
  const auto set = allowed();
  bool any = false;
  const size_t known = std::min(logits.size(), static_cast<size_t>(vocabulary_->size()));
  for (size_t begin = 0; begin < known; begin += 64) {
    const size_t count = std::min<size_t>(64, known - begin);
    const uint64_t inside = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    uint64_t allowed_here = set->bits[begin / 64] & inside;
    for (const auto& [id, logit] : ends) {
      if (id / 64 == begin / 64) allowed_here &= ~(uint64_t{1} << (id % 64));
    }
    any |= allowed_here != 0;
    for (uint64_t never = inside & ~allowed_here; never != 0; never &= never - 1) {
      logits[begin + static_cast<size_t>(std::countr_zero(never))] = kNever;
    }
  }
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(known), logits.end(), kNever);
  for (const auto& [id, logit] : ends) {
    logits[id] = logit;
    any |= can_end_;
  }
  return any;
}

bool GrammarMatcher::stuck() const {
  return !can_end_ && !allowed()->any;
}

}  // namespace adder
