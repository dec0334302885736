#include "server/chunked_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "server/http_request.h"

namespace adder {
namespace {

constexpr size_t kSizeDigits = 16;  // leading zeros included

}  // namespace

bool ChunkedBody::take_line(std::string_view& rest, std::string_view& line) const {
  const size_t end = rest.find('\n');
  line = rest.substr(0, end);
  if (line.size() > kSizeDigits + extra_left_ + 1) {
    throw HttpRefusal(400, "chunk: expected a shorter line or trailer");
  }
  if (end == std::string_view::npos) return false;
  if (!line.ends_with('\r')) throw HttpRefusal(400, "chunk: expected lines that end in CR and LF");
  line.remove_suffix(1);
  const auto bad = [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  };
  if (std::any_of(line.begin(), line.end(), bad)) {
    throw HttpRefusal(400, "chunk: expected no control characters");
  }
  rest.remove_prefix(end + 1);
  return true;
}

void ChunkedBody::spend(size_t bytes) {
  if (bytes > extra_left_) throw HttpRefusal(400, "chunk: expected a shorter line or trailer");
  extra_left_ -= bytes;
}

void ChunkedBody::read_size(std::string_view line, size_t body_size) {
  const char* const first = line.data();
  const char* const last = first + line.size();
  size_t size = 0;
  const auto [end, error] = std::from_chars(first, last, size, 16);
  const size_t digits = static_cast<size_t>(end - first);
  if (error != std::errc() || digits > kSizeDigits) {
    throw HttpRefusal(400, "chunk: expected its size in hexadecimal digits");
  }
  const std::string_view extension = line.substr(digits);
  const size_t start = std::min(extension.find_first_not_of(" \t"), extension.size());
  if (start < extension.size() && extension[start] != ';') {
    throw HttpRefusal(400, "chunk: expected ';' or the end of the line after its size");
  }
  spend(extension.size());
  if (size > body_limit_ - body_size) {
    throw HttpRefusal(413, fmt::format("body: expected at most {} bytes", body_limit_));
  }
  data_left_ = size;
  part_ = size > 0 ? Part::kData : Part::kTrailer;
}

void ChunkedBody::read(std::string& bytes, std::string& body) {
  std::string_view rest = bytes, line;
  bool more = true;
  while (more && part_ != Part::kDone) {
    switch (part_) {
      case Part::kSize:
        more = take_line(rest, line);
        if (more) read_size(line, body.size());
        break;
      case Part::kData: {
        const std::string_view data = rest.substr(0, data_left_);
        body += data;
        rest.remove_prefix(data.size());
        data_left_ -= data.size();
        more = data_left_ == 0;
        if (more) part_ = Part::kDataEnd;
        break;
      }
      case Part::kDataEnd:
        if (!std::string_view("\r\n").starts_with(rest.substr(0, 2))) {
          throw HttpRefusal(400, "chunk: expected CR and LF after its data");
        }
        more = rest.size() >= 2;
        if (more) rest.remove_prefix(2), part_ = Part::kSize;
        break;
      case Part::kTrailer:
        more = take_line(rest, line);
        if (!more) break;
        spend(line.size());
        if (line.empty()) part_ = Part::kDone;
        break;
      case Part::kDone:
        break;
    }
  }
  bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace adder
