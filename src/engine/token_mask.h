// Which tokens may come next so that the text keeps to a grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/grammar.h"
#include "engine/token_vocabulary.h"

namespace adder {

// One text that is being written. A copy goes on by itself and costs no more than its pointers;
// copies share what they find out, so a matcher kept at the start and copied for each request makes
// the masks of usual states once. Copies may be used by different threads at the same time.
//
// With each choice of a token:
//   if (matcher.must_end()) { the text is complete }
//   if (!matcher.mask(logits, end_ids)) { no token of this vocabulary can go on: an error }
//   id = a token chosen from logits; if it is no end id, matcher.accept(id)
class GrammarMatcher {
 public:
  // Bytes of memory, for states and again for masks, after which copies forget and begin anew.
  static constexpr size_t kMaxMemory = 4 << 20;

  // Like mask() and accept(), throws Error(kBadInput) when the grammar is too ambiguous
  // (grammar_states.h).
  GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                 std::shared_ptr<const TokenVocabulary> vocabulary);

  // Sets the logits of all ids that cannot come next to minus infinity. `logits` may be longer than
  // the vocabulary (padding ids are never allowed) or shorter. end_ids are allowed exactly when the
  // text may end here, whatever their bytes. Returns whether any id is left. The text may end
  // inside no character, but a token may. Throws Error(kBadInput) when the grammar is too ambiguous
  // (grammar_states.h); so does accept().
  bool mask(std::span<float> logits, std::span<const int32_t> end_ids) const;
  // Throws Error(kBadInput) when the token cannot come here, and changes nothing then.
  void accept(int32_t token);

  bool can_end() const { return can_end_; }    // the text may be complete
  bool must_end() const { return must_end_; }  // it is: nothing can follow
  // The text is not complete and no token of the vocabulary can follow.
  bool stuck() const;

 private:
  struct Cache;
  struct Family;
  struct TokenSet {
    std::vector<uint64_t> bits;  // by id
    bool any = false;
  };

  std::shared_ptr<const TokenSet> allowed() const;
  TokenSet find_allowed() const;
  void enter(uint32_t state);

  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::shared_ptr<Family> family_;
  std::shared_ptr<Cache> cache_;
  uint32_t state_ = 0;  // of cache_
  bool can_end_ = false, must_end_ = false;
};

}  // namespace adder
