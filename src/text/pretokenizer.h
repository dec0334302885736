// Cuts text into the words that byte pair encoding works on: tokenizer.json's pre_tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"

namespace adder {

// What becomes of the matches of a pattern; the names are those of tokenizer.json.
enum class SplitBehavior : uint8_t {
  kRemoved,             // left out
  kIsolated,            // a piece each
  kMergedWithPrevious,  // end the piece before
  kMergedWithNext,      // begin the piece after
  kContiguous,          // neighbours of the same kind become one piece
};

// Which pieces get the character that stands for a blank put in front.
enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };

class Pretokenizer {
 public:
  struct Words {
    std::string text;
    struct Range {
      uint32_t begin, end;
    };
    std::vector<Range> ranges;  // into text, in order

    std::string_view word(size_t i) const {
      return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
    }
  };

  void add_regex(Regex regex, SplitBehavior behavior, bool invert);
  void add_literal(std::string text, SplitBehavior behavior, bool invert);
  void add_digits(bool individual);
  void add_punctuation(SplitBehavior behavior);
  void add_white_space();  // words between white space, which is left out
  // From here on, steps see bytes as GPT-2 characters, as their patterns expect; words stay bytes.
  void add_byte_level(bool add_prefix_space, bool use_regex);
  // Writes `replacement` for each blank.
  void add_metaspace(std::string replacement, PrependScheme scheme, bool split);

  bool is_byte_level() const { return byte_level_; }
  // Puts a blank before text that follows a token / only before the first text.
  bool prepends_always() const { return prepends_always_; }
  bool prepends_first() const { return prepends_first_; }

  // `text` must be valid UTF-8 of less than 2^31 bytes. `at_start`: nothing stands before it, not
  // even a token. `after_bytes`: it goes on after a byte that is not UTF-8, so that no blank may
  // be put in front.
  Words split(std::string text, bool at_start, bool after_bytes) const;

 private:
  struct Step;
  struct Span {
    uint32_t begin, end;
    bool match;
  };
  enum class Kind : uint8_t {
    kRegex,
    kLiteral,
    kDigits,
    kPunctuation,
    kWhiteSpace,
    kByteLevel,
    kMetaspace
  };
  struct Step {
    Kind kind;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool prefix = false;  // byte level: a blank is put in front
    bool cut = true;      // byte level and metaspace: the text is cut, too
    PrependScheme scheme = PrependScheme::kNever;
    std::string text;
    std::vector<Regex> regex;  // none or one
  };

  void rewrite(const Step& step, Words& words, bool at_start, bool after_bytes) const;
  void cut(const Step& step, Words& words, bool as_characters) const;
  static void find_spans(const Step& step, Regex::Searcher* searcher, std::string_view text,
                         std::vector<Span>& spans);

  std::vector<Step> steps_;
  bool byte_level_ = false, prepends_always_ = false, prepends_first_ = false;
};

}  // namespace adder
