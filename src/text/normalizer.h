// The normalisers of tokenizer.json that byte pair encodings use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/regex.h"
#include "text/unicode.h"

namespace adder {

class Normalizer {
 public:
  void add_form(NormalForm form) { steps_.push_back({.kind = Kind::kForm, .form = form}); }
  // Puts `text` in front, unless what it meets is empty.
  void add_prepend(std::string text) {
    steps_.push_back({.kind = Kind::kPrepend, .to = std::move(text)});
  }
  void add_replace(std::string from, std::string to) {
    steps_.push_back({.kind = Kind::kReplace, .from = std::move(from), .to = std::move(to)});
  }
  void add_replace(Regex from, std::string to) {
    Step step{.kind = Kind::kReplaceRegex, .to = std::move(to)};
    step.regex.push_back(std::move(from));
    steps_.push_back(std::move(step));
  }

  bool empty() const { return steps_.empty(); }
  bool prepends() const;
  // `text` must be valid UTF-8. Without `at_start` nothing is put in front: the text goes on after
  // a byte that is not UTF-8.
  std::string apply(std::string_view text, bool at_start) const;

 private:
  enum class Kind : uint8_t { kForm, kPrepend, kReplace, kReplaceRegex };
  struct Step {
    Kind kind;
    NormalForm form = NormalForm::kNfc;
    std::string from{}, to{};
    std::vector<Regex> regex{};  // none or one
  };
  static std::string replace_matches(const Step& step, std::string_view text);

  std::vector<Step> steps_;
};

// Every occurrence from the left; `from` must not be empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace adder
