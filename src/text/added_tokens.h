// Tokens that are cut out of the text before anything else is done to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adder {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;      // a control token
  bool lstrip = false;       // takes the blanks before it
  bool rstrip = false;       // takes the blanks after it
  bool single_word = false;  // only between characters that are not part of a word
  bool normalized = true;    // is looked for after normalisation
};

class AddedTokenMatcher {
 public:
  // A piece of text: a token, or text between tokens (id -1).
  struct Piece {
    int32_t id;
    size_t begin, end;
  };
  // Whether a control token may be made of text[begin, end).
  using AllowSpecial = std::function<bool(size_t begin, size_t end)>;

  // Keeps `tokens`; those with empty content are dropped.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});

  // Leftmost, then longest, as in Hugging Face's reader: a longest match that is refused by
  // single_word is passed over as a whole. Blanks taken by lstrip and rstrip belong to the token.
  // Empty pieces of text are left out. Time: O(text + sum of the matched prefixes).
  std::vector<Piece> split(std::string_view text, const AllowSpecial& allow_special) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t begin,
                               const AllowSpecial& allow_special) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  // Tokens that start with a byte: the range [first, second) of tokens_.
  std::array<std::pair<uint32_t, uint32_t>, 256> by_first_byte_{};
};

}  // namespace adder
