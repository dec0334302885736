// The parts of a text as one text, with the stretches where control tokens count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace adder {

class JoinedParts {
 public:
  // Refers to the text of a single part; joins several.
  explicit JoinedParts(std::span<const TextPart> parts) {
    if (parts.size() == 1) {
      text_ = parts[0].text;
      if (parts[0].parse_special) stretches_.emplace_back(0, text_.size());
      return;
    }
    for (const TextPart& part : parts) {
      if (part.parse_special) {
        if (stretches_.empty() || stretches_.back().second != joined_.size()) {
          stretches_.emplace_back(joined_.size(), joined_.size());
        }
        stretches_.back().second += part.text.size();
      }
      joined_.append(part.text);
    }
    text_ = joined_;
  }
  JoinedParts(const JoinedParts&) = delete;
  JoinedParts& operator=(const JoinedParts&) = delete;

  std::string_view text() const { return text_; }

  // True when text[begin, end) lies in parts that ask for control tokens.
  bool allows_special(size_t begin, size_t end) const {
    const auto after = std::upper_bound(
        stretches_.begin(), stretches_.end(), begin,
        [](size_t position, const auto& stretch) { return position < stretch.first; });
    return after != stretches_.begin() && end <= std::prev(after)->second;
  }

 private:
  std::string joined_;
  std::string_view text_;
  std::vector<std::pair<size_t, size_t>> stretches_;
};

}  // namespace adder
