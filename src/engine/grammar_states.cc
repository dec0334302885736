#include "engine/grammar_states.h"

#include <algorithm>
#include <functional>

#include "core/error.h"

namespace adder {
namespace {

uint64_t pair_key(uint32_t a, uint32_t b) {
  return static_cast<uint64_t>(a) << 32 | b;
}

// splitmix64's mixer (public domain, Sebastiano Vigna).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      interned_(64, HashSet{this}, EqualSets{this}),
      pending_(grammar_->rules(), kDead),
      entered_(grammar_->states(), 0) {
  sets_.resize(1);  // number 0 is kUnknown
  intern({}, false);
  intern({}, true);
  reset_scratch();
  // The root as if it had been called, so that the automaton begins like any rule.
  ends_ = grammar_->nullable(grammar_->root());
  add_call({grammar_->root(), 0, true}, kBottom);
  start_ = close();
}

size_t GrammarStates::memory() const {
  constexpr size_t kHashNode = 32;
  return places_.size() * sizeof(Place) + sets_.size() * (sizeof(Set) + kHashNode) +
         steps_.size() * sizeof(Id) + united_.size() * kHashNode;
}

bool GrammarStates::equal(Id a, Id b) const {
  const Set &x = sets_[a], &y = sets_[b];
  const auto first = places_.begin() + static_cast<std::ptrdiff_t>(x.begin);
  return x.hash == y.hash && x.ends == y.ends && x.count == y.count &&
         std::equal(first, first + x.count, places_.begin() + static_cast<std::ptrdiff_t>(y.begin));
}

void GrammarStates::count_work(uint64_t places) {
  work_done_ += places;
  ADDER_CHECK(work_done_ <= kMaxWork,
              "grammar: too ambiguous: more than {} ways to go on were tried for one token",
              kMaxWork);
}

// An error may have left a step half done.
void GrammarStates::reset_scratch() {
  todo_.clear();
  seen_.clear();
  found_.clear();
  ends_ = false;
  for (const auto& [order, rule] : called_) pending_[rule] = kDead;
  called_.clear();
}

GrammarStates::Id GrammarStates::intern(const std::vector<Place>& places, bool ends) {
  const auto id = static_cast<Id>(sets_.size());
  Set set{.begin = places_.size(), .count = static_cast<uint32_t>(places.size()), .ends = ends};
  uint64_t hash = mix(places.size() * 2 + (ends ? 1 : 0));
  for (const Place& place : places) {
    hash = mix(hash ^ pair_key(place.state, place.below));
    set.depth = std::max(set.depth, sets_[place.below].depth + 1);
  }
  set.hash = hash;
  places_.insert(places_.end(), places.begin(), places.end());
  sets_.push_back(set);
  const auto [found, is_new] = interned_.insert(id);
  if (!is_new) {
    sets_.pop_back();
    places_.resize(set.begin);
  }
  return *found;
}

// Recursion is as deep as the stacks.
GrammarStates::Id GrammarStates::unite(Id a, Id b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  if (a > b) std::swap(a, b);
  if (const auto known = united_.find(pair_key(a, b)); known != united_.end()) {
    return known->second;
  }
  std::vector<Place> merged;
  merged.reserve(sets_[a].count + sets_[b].count);
  count_work(merged.capacity());
  // By number: places_ and sets_ move when something is added.
  size_t i = sets_[a].begin, j = sets_[b].begin;
  const size_t i_end = i + sets_[a].count, j_end = j + sets_[b].count;
  while (i < i_end && j < j_end) {
    const Place x = places_[i], y = places_[j];
    if (x.state == y.state) {
      merged.push_back({x.state, unite(x.below, y.below)});
    } else {
      merged.push_back(x.state < y.state ? x : y);
    }
    if (x.state <= y.state) ++i;
    if (y.state <= x.state) ++j;
  }
  for (; i < i_end; ++i) merged.push_back(places_[i]);
  for (; j < j_end; ++j) merged.push_back(places_[j]);
  const Id id = intern(merged, sets_[a].ends || sets_[b].ends);
  united_.emplace(pair_key(a, b), id);
  return id;
}

// Behind a call that ends its rule, the text goes on where the rule's own caller goes on: lists
// written as recursion need no stack.
void GrammarStates::add_call(const Grammar::Call& call, Id below) {
  Id under = below;
  if (!call.last) {
    if (sets_[below].depth >= kMaxDepth) return;
    under = intern({{call.target, below}}, false);
  }
  Id& pending = pending_[call.rule];
  if (pending == kDead) {
    called_.emplace_back(grammar_->order(call.rule), call.rule);
    std::push_heap(called_.begin(), called_.end(), std::greater<>());
  }
  pending = unite(pending, under);
}

// Follows what was reached by a byte: rules end here, and what lies below them goes on.
void GrammarStates::go_on_after_byte() {
  while (!todo_.empty()) {
    const Place place = todo_.back();
    todo_.pop_back();
    if (!seen_.insert(pair_key(place.state, place.below)).second) continue;
    if (grammar_->accepts(place.state)) {
      const Set below = sets_[place.below];
      ends_ |= below.ends;
      count_work(below.count);
      for (size_t i = 0; i < below.count; ++i) todo_.push_back(places_[below.begin + i]);
    }
    const auto jumps = grammar_->jumps(place.state);
    const auto calls = grammar_->calls(place.state);
    count_work(1 + jumps.size() + calls.size());
    for (const uint32_t target : jumps) todo_.push_back({target, place.below});
    for (const Grammar::Call& call : calls) {
      add_call(call, place.below);
      if (grammar_->nullable(call.rule)) todo_.push_back({call.target, place.below});
    }
    if (!grammar_->byte_edges(place.state).empty()) found_.push_back(place);
  }
}

// Goes to the beginnings of the called rules. Callers come before those that they begin with, so
// each rule is entered once, with all that may lie below it. Ends that are reached here belong to
// empty texts, which were passed at the call.
void GrammarStates::enter_rules() {
  while (!called_.empty()) {
    std::pop_heap(called_.begin(), called_.end(), std::greater<>());
    const uint32_t rule = called_.back().second;
    called_.pop_back();
    const Id below = std::exchange(pending_[rule], kDead);
    if (++entry_ == 0) {
      std::fill(entered_.begin(), entered_.end(), 0);
      entry_ = 1;
    }
    inside_.assign(1, grammar_->start(rule));
    while (!inside_.empty()) {
      const uint32_t state = inside_.back();
      inside_.pop_back();
      if (std::exchange(entered_[state], entry_) == entry_) continue;
      const auto jumps = grammar_->jumps(state);
      const auto calls = grammar_->calls(state);
      count_work(1 + jumps.size() + calls.size());
      inside_.insert(inside_.end(), jumps.begin(), jumps.end());
      for (const Grammar::Call& call : calls) {
        add_call(call, below);
        if (grammar_->nullable(call.rule)) inside_.push_back(call.target);
      }
      if (!grammar_->byte_edges(state).empty()) found_.push_back({state, below});
    }
  }
}

GrammarStates::Id GrammarStates::close() {
  go_on_after_byte();
  enter_rules();
  std::sort(found_.begin(), found_.end(), [](const Place& a, const Place& b) {
    return pair_key(a.state, a.below) < pair_key(b.state, b.below);
  });
  size_t kept = 0;
  for (const Place& place : found_) {
    if (kept > 0 && found_[kept - 1].state == place.state) {
      found_[kept - 1].below = unite(found_[kept - 1].below, place.below);
    } else {
      found_[kept++] = place;
    }
  }
  found_.resize(kept);
  ADDER_CHECK(kept <= kMaxPlaces,
              "grammar: too ambiguous: expected at most {} places to be in at once, got {}",
              kMaxPlaces, kept);
  return intern(found_, ends_);
}

GrammarStates::Id GrammarStates::find_next(Id state, uint8_t byte, uint32_t byte_class) {
  const Set from = sets_[state];
  if (from.count == 0) return kDead;
  reset_scratch();
  count_work(from.count);
  for (size_t i = 0; i < from.count; ++i) {
    const Place place = places_[from.begin + i];
    const auto edges = grammar_->byte_edges(place.state);
    count_work(edges.size() / 8);
    for (const Grammar::ByteEdge& edge : edges) {
      if (edge.low <= byte && byte <= edge.high) todo_.push_back({edge.target, place.below});
    }
  }
  const Id result = close();
  if (sets_[state].row == kNoRow) {
    sets_[state].row = static_cast<uint32_t>(steps_.size());
    steps_.resize(steps_.size() + grammar_->byte_classes(), kUnknown);
  }
  steps_[sets_[state].row + byte_class] = result;
  return result;
}

// Sets have larger numbers than those below them.
GrammarStates::Id GrammarStates::adopt(const GrammarStates& other, Id state) {
  work_done_ = other.work_done_;
  std::vector<Id> needed = {state};
  std::unordered_map<Id, Id> known = {{kDead, kDead}, {kBottom, kBottom}};
  for (size_t i = 0; i < needed.size(); ++i) {
    const Set& set = other.sets_[needed[i]];
    for (size_t k = 0; k < set.count; ++k) {
      const Id below = other.places_[set.begin + k].below;
      if (known.try_emplace(below, kUnknown).second) needed.push_back(below);
    }
  }
  std::sort(needed.begin(), needed.end());
  std::vector<Place> places;
  for (const Id id : needed) {
    const Set& set = other.sets_[id];
    places.clear();
    for (size_t k = 0; k < set.count; ++k) {
      const Place& place = other.places_[set.begin + k];
      places.push_back({place.state, known[place.below]});
    }
    known[id] = intern(places, set.ends);
  }
  return known[state];
}

}  // namespace adder
