// The states that a grammar can be in between two bytes, found as they are needed.
//
// A state is the set of all stacks that the bytes so far may have led to: where the text is in its
// rule, where it goes on in the rule around it, and so on. Stacks are kept as a set of (place, set
// of what lies below), each place once and each set stored once, so that ambiguity adds places
// instead of multiplying stacks, and equal states have equal numbers. Steps that were taken are
// remembered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/grammar.h"

namespace adder {

class GrammarStates {
 public:
  using Id = uint32_t;
  static constexpr Id kDead = 1;  // no text of the grammar begins like this
  // Calls inside each other; what would need more is dead.
  static constexpr uint32_t kMaxDepth = 1'000;
  static constexpr uint32_t kMaxPlaces = 4'000;  // in one state
  // Places looked at between two begin_work(): milliseconds for a grammar that is meant to be used.
  static constexpr uint64_t kMaxWork = 2'000'000;

  explicit GrammarStates(std::shared_ptr<const Grammar> grammar);
  GrammarStates(const GrammarStates&) = delete;
  GrammarStates& operator=(const GrammarStates&) = delete;

  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }
  Id start() const { return start_; }
  // Throws Error(kBadInput) when the grammar is too ambiguous: kMaxPlaces or kMaxWork is exceeded.
  Id next(Id state, uint8_t byte) {
    const uint32_t byte_class = grammar_->byte_class(byte);
    const uint32_t row = sets_[state].row;
    const Id known = row == kNoRow ? kUnknown : steps_[row + byte_class];
    return known != kUnknown ? known : find_next(state, byte, byte_class);
  }
  bool can_end(Id state) const { return sets_[state].ends; }
  bool must_end(Id state) const { return sets_[state].ends && sets_[state].count == 0; }

  void begin_work() { work_done_ = 0; }
  // Roughly the memory in use, in bytes.
  size_t memory() const;
  // The state of another object for the same grammar; its work counts as work of this one.
  Id adopt(const GrammarStates& other, Id state);

 private:
  static constexpr Id kUnknown = 0;
  static constexpr Id kBottom = 2;  // only the empty stack: the end of the text
  static constexpr uint32_t kNoRow = UINT32_MAX;

  struct Place {
    uint32_t state;  // of the grammar
    Id below;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Set {
    size_t begin = 0;  // in places_: ascending states, each once
    uint32_t count = 0;
    bool ends = false;   // the empty stack belongs to it
    uint32_t depth = 0;  // of the longest stack
    size_t hash = 0;
    uint32_t row = kNoRow;  // where its steps begin in steps_
  };
  struct HashSet {
    const GrammarStates* owner;
    size_t operator()(Id id) const { return owner->sets_[id].hash; }
  };
  struct EqualSets {
    const GrammarStates* owner;
    bool operator()(Id a, Id b) const { return owner->equal(a, b); }
  };

  bool equal(Id a, Id b) const;
  Id find_next(Id state, uint8_t byte, uint32_t byte_class);
  void count_work(uint64_t places);
  void reset_scratch();
  Id intern(const std::vector<Place>& places, bool ends);
  Id unite(Id a, Id b);
  void add_call(const Grammar::Call& call, Id below);
  void go_on_after_byte();
  void enter_rules();
  Id close();

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Place> places_;
  std::vector<Set> sets_;
  std::vector<Id> steps_;  // byte_classes() for each state that was stepped from
  std::unordered_set<Id, HashSet, EqualSets> interned_;
  std::unordered_map<uint64_t, Id> united_;
  Id start_ = kDead;
  uint64_t work_done_ = 0;

  // Scratch of one step.
  std::vector<Place> todo_;            // reached after the byte, not yet followed
  std::unordered_set<uint64_t> seen_;  // those that were
  std::vector<Place> found_;           // from which a byte can be taken
  bool ends_ = false;
  std::vector<Id> pending_;  // by rule: what lies below its text, kDead if it is not called
  std::vector<std::pair<uint32_t, uint32_t>> called_;  // heap of (order, rule), smallest first
  std::vector<uint32_t> inside_;                       // states of a rule that is being entered
  std::vector<uint32_t> entered_;                      // by state: the entry that last reached it
  uint32_t entry_ = 0;
};

}  // namespace adder
