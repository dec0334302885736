#include "engine/token_vocabulary.h"

#include <algorithm>

#include "core/error.h"

namespace adder {

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer) {
  const int32_t size = tokenizer.size();
  begin_.push_back(0);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < size; ++id) {
    if (!tokenizer.is_special(id)) text_ += tokenizer.token_bytes(id);
    if (text_.size() > begin_.back()) ids.push_back(id);
    begin_.push_back(text_.size());
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [this](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  next_equal_.assign(static_cast<size_t>(size), kNone);
  std::vector<uint32_t> open;  // the nodes of the token before, root first
  std::string_view before;
  const auto close_below = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const int32_t id : ids) {
    const std::string_view token = bytes(id);
    const size_t shorter = std::min(token.size(), before.size());
    size_t common = 0;
    while (common < shorter && token[common] == before[common]) ++common;
    close_below(common);
    while (open.size() < token.size()) {
      const auto byte = static_cast<uint8_t>(token[open.size()]);
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(open.size()), kNone, byte});
    }
    Node& node = nodes_[open.back()];
    next_equal_[static_cast<size_t>(id)] = node.token;
    node.token = id;
    max_depth_ = std::max(max_depth_, node.depth);
    before = token;
  }
  close_below(0);
}

std::string_view TokenVocabulary::bytes(int32_t id) const {
  ADDER_CHECK(id >= 0 && id < size(), "token id: expected 0 .. {}, got {}", size() - 1, id);
  const auto i = static_cast<size_t>(id);
  return std::string_view(text_).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

}  // namespace adder
