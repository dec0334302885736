#include "engine/token_vocabulary.h"

#include <algorithm>

#include "core/error.h"

namespace adder {

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer) {
  const int32_t size = tokenizer.size();
  begin_.push_back(0);
  for (int32_t id = 0; id < size; ++id) {
    if (!tokenizer.is_special(id)) text_ += tokenizer.token_bytes(id);
    if (text_.size() > begin_.back()) ids_.push_back(id);
    begin_.push_back(text_.size());
  }
  std::stable_sort(ids_.begin(), ids_.end(),
                   [this](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  std::vector<uint32_t> open;  // the nodes of the token before, root first
  std::string_view before;
  const auto close_below = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view token = bytes(ids_[i]);
    const size_t shorter = std::min(token.size(), before.size());
    size_t common = 0;
    while (common < shorter && token[common] == before[common]) ++common;
    close_below(common);
    while (open.size() < token.size()) {
      const auto byte = static_cast<uint8_t>(token[open.size()]);
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(open.size()), static_cast<uint32_t>(i), kNone, byte});
    }
    max_depth_ = std::max(max_depth_, nodes_[open.back()].depth);
    before = token;
  }
  close_below(0);
  nodes_.push_back({0, 0, static_cast<uint32_t>(ids_.size()), kNone, 0});
  collect_bytes_below();
}

// Linear in the tree: a node is looked at once for each of the few above it that have a set.
void TokenVocabulary::collect_bytes_below() {
  constexpr size_t kFew = 32;  // not worth a set
  constexpr uint32_t kDeepest = 16;
  for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
    if (nodes_[i].end - i <= kFew || nodes_[i].depth > kDeepest) continue;
    ByteSet set;
    for (size_t k = i + 1; k < nodes_[i].end; ++k) set.set(nodes_[k].byte);
    nodes_[i].below = static_cast<uint32_t>(byte_sets_.size());
    byte_sets_.push_back(set);
  }
}

std::string_view TokenVocabulary::bytes(int32_t id) const {
  ADDER_CHECK(id >= 0 && id < size(), "token id: expected 0 .. {}, got {}", size() - 1, id);
  const auto i = static_cast<size_t>(id);
  return std::string_view(text_).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

}  // namespace adder
