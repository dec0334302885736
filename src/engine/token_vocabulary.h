// The bytes of all tokens of a tokenizer as a tree, so that a grammar looks at a common beginning
// once.
#pragma once

#include <bitset>
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
  explicit TokenVocabulary(const Tokenizer& tokenizer);

  int32_t size() const { return static_cast<int32_t>(begin_.size()) - 1; }  // ids are below this
  // Empty for ids that are not part of it. Throws Error(kBadInput) for an id outside [0, size()).
  std::string_view bytes(int32_t id) const;

  using ByteSet = std::bitset<256>;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    uint32_t end;          // the first node that does not lie below this one
    uint32_t depth;        // bytes from the root to here, this one included: at least 1
    uint32_t first_token;  // in ids_: tokens that end here, then those below
    uint32_t below;        // in byte_sets_: the bytes of all nodes below; kNone: not known
    uint8_t byte;
  };
  // A node comes before those below it.
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  uint32_t max_depth() const { return max_depth_; }
  // Several tokens may have the same bytes.
  std::span<const int32_t> tokens_at(size_t node) const { return tokens_between(node, node + 1); }
  std::span<const int32_t> tokens_from(size_t node) const {  // those that end here or below
    return tokens_between(node, nodes_[node].end);
  }
  const ByteSet* bytes_below(const Node& node) const {
    return node.below == kNone ? nullptr : &byte_sets_[node.below];
  }

 private:
  std::span<const int32_t> tokens_between(size_t node, size_t end) const {
    const uint32_t first = nodes_[node].first_token;
    return std::span(ids_).subspan(first, nodes_[end].first_token - first);
  }
  void collect_bytes_below();

  std::string text_;
  std::vector<size_t> begin_;  // of each token in text_, and the end of the last
  std::vector<Node> nodes_;    // and one behind the last
  std::vector<int32_t> ids_;   // in the order of the tree
  std::vector<ByteSet> byte_sets_;
  uint32_t max_depth_ = 0;
};

}  // namespace adder
