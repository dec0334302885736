// Which log-probabilities belong to text that a client has been given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "server/openai_response.h"

namespace adder {

// Tokens come before their text, because the beginnings of characters and of stop strings are held
// back, and the tokens of a stop string have no text at all. A token is released together with the
// text that it begins in.
class LogprobTrack {
 public:
  void add(SpelledToken token);
  // The tokens that begin in `text` or before it, which has just been shown.
  std::vector<SpelledToken> release(std::string_view text);
  // The rest, at the end of the answer: without those of a stop string.
  std::vector<SpelledToken> finish(FinishReason reason);

 private:
  std::string bytes_;      // of all tokens
  size_t shown_ = 0;       // of those, given out as text
  bool exact_ = true;      // the text is these bytes; false once bytes became U+FFFD
  size_t next_start_ = 0;  // where the first waiting token begins
  std::vector<SpelledToken> waiting_;
};

}  // namespace adder
