#include "text/tokenizer.h"
#include "text/unicode.h"

namespace adder {

std::string_view StreamDecoder::push(int32_t id) {
  out_.clear();
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (tokenizer_->is_special(id) || bytes.empty()) return out_;
  if (first_ && tokenizer_->strips_leading_space() && bytes.front() == ' ') bytes.remove_prefix(1);
  first_ = false;
  pending_.append(bytes);
  append_complete(false);
  return out_;
}

std::string_view StreamDecoder::finish() {
  out_.clear();
  append_complete(true);
  return out_;
}

void StreamDecoder::append_complete(bool at_end) {
  const std::string_view all = pending_;
  size_t done = 0;
  while (done < all.size()) {
    const size_t valid = valid_utf8_prefix(all.substr(done));
    out_.append(all.substr(done, valid));
    done += valid;
    if (done == all.size()) break;
    const Utf8Part part = next_utf8(all, done);
    if (part.kind == Utf8Kind::kIncomplete && !at_end) break;
    out_.append(kReplacementCharacter);
    done += part.length;
  }
  pending_.erase(0, done);
}

}  // namespace adder
