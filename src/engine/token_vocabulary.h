// The bytes of all tokens of a tokenizer as a tree, so that a grammar looks at a common beginning
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace adder {

// Immutable; nothing of the tokenizer is kept. Control tokens and tokens without bytes are not part
// of it: no text contains them.
class TokenVocabulary {
 public:
  static constexpr int32_t kNone = -1;

  explicit TokenVocabulary(const Tokenizer& tokenizer);

  int32_t size() const { return static_cast<int32_t>(begin_.size()) - 1; }  // ids are below this
  // Empty for ids that are not part of it. Throws Error(kBadInput) for an id outside [0, size()).
  std::string_view bytes(int32_t id) const;

  struct Node {
    uint32_t end;    // the first node that does not lie below this one
    uint32_t depth;  // bytes from the root to here, this one included: at least 1
    int32_t token;   // that ends here, kNone if there is none
    uint8_t byte;
  };
  std::span<const Node> nodes() const { return nodes_; }  // a node comes before those below it
  uint32_t max_depth() const { return max_depth_; }
  // Another token with the same bytes, kNone after the last.
  int32_t next_equal(int32_t token) const { return next_equal_[static_cast<size_t>(token)]; }

 private:
  std::string text_;
  std::vector<size_t> begin_;  // of each token in text_, and the end of the last
  std::vector<Node> nodes_;
  std::vector<int32_t> next_equal_;
  uint32_t max_depth_ = 0;
};

}  // namespace adder
