// The chunked form of a body (RFC 9112, section 7.1), read as its bytes arrive. Internal to the
// server. Not Beast's: version 1.74 fails an assertion where a body is only its last chunk, in
// pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adder {

class ChunkedBody {
 public:
  // At most `body_limit` bytes of body, and `extra_limit` bytes of chunk extensions and trailers
  // together, which are forgotten.
  ChunkedBody(size_t body_limit, size_t extra_limit)
      : body_limit_(body_limit), extra_left_(extra_limit) {}

  // Moves what is complete from the front of `bytes` to `body`, and nothing of what follows the
  // body. Throws HttpRefusal.
  void read(std::string& bytes, std::string& body);
  bool done() const { return part_ == Part::kDone; }

 private:
  enum class Part { kSize, kData, kDataEnd, kTrailer, kDone };
  // The line at the front of `rest` without its end, and removes it; false if it is not complete.
  bool take_line(std::string_view& rest, std::string_view& line) const;
  void spend(size_t bytes);
  void read_size(std::string_view line, size_t body_size);

  size_t body_limit_, extra_left_;
  Part part_ = Part::kSize;
  size_t data_left_ = 0;  // of the chunk
};

}  // namespace adder
