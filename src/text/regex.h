// Regular expressions of tokenizer.json, run by PCRE2 (compiled to machine code where the
// platform has PCRE2's JIT).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace adder {

struct Match {
  size_t begin, end;
};

class Regex {
 public:
  // `pattern` is in the syntax of Oniguruma (Ruby), which is what Hugging Face's tokenizers use.
  // `where` names file and field in messages. Throws Error(kBadInput) when the pattern is
  // malformed, Error(kUnsupported) when PCRE2 cannot express it.
  Regex(std::string_view pattern, std::string_view where);

  // Room for one search at a time; cheap to make, one for each thread.
  class Searcher {
   public:
    explicit Searcher(const Regex& regex);
    ~Searcher();
    Searcher(const Searcher&) = delete;
    Searcher& operator=(const Searcher&) = delete;

    // The first non-empty match at or after `from`. `text` must be valid UTF-8.
    // Throws Error(kBadInput) when the pattern backtracks without end on this text.
    std::optional<Match> find(std::string_view text, size_t from);

   private:
    struct State;
    const Regex& regex_;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string where_;
};

// The PCRE2 spelling (UTF and UCP options, newline LF, multiline) of an Oniguruma pattern.
// Where they differ: \s and \w (PCRE2 counts U+180E as a blank and no marks as word characters),
// \h (a hexadecimal digit), \v, \uHHHH, {,n}, the plus after an interval, and (?m) for "dot
// matches newline". Nested sets and && are refused with Error(kUnsupported).
std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view where);

}  // namespace adder
