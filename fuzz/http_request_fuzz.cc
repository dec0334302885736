// Any bytes as one connection's requests: each is refused with a status, or understood the same way
// whatever pieces its bytes come in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/request_parser.h"
#include "text/unicode.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// What became of the bytes, as text; they arrive `piece` at a time.
std::string outcome(const std::string& bytes, size_t piece) {
  adder::HttpServerOptions options;
  options.url_limit = 200;
  options.header_limit = 400;
  options.body_limit = 300;
  adder::RequestParser parser(options);
  adder::HttpRequest request;
  std::string in;
  bool has_head = false;
  size_t searched = 0;
  try {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      in.append(bytes, at, piece);
      if (!has_head) {
        const size_t end = adder::find_head_end(in, searched, options);
        if (end == 0) continue;
        require(end <= in.size() && end <= options.header_limit);
        parser.parse_head(in.substr(0, end), request);
        in.erase(0, end);
        has_head = true;
      }
      if (!parser.done()) parser.parse_body(in);
      require(parser.body_bytes() <= options.body_limit);
      if (parser.done()) break;
    }
  } catch (const adder::HttpRefusal& refusal) {
    require(refusal.status() >= 400 && refusal.status() < 600);
    return "refused";
  }
  if (!has_head || !parser.done()) return "incomplete";
  std::string text = request.method + '\n' + request.path + '\n';
  for (const std::string& segment : request.segments) {
    require(adder::is_valid_utf8(segment) && !segment.empty());
    text += segment + '\n';
  }
  for (const adder::HttpHeaders* list : {&request.query, &request.headers}) {
    for (const auto& [name, value] : *list) text += name + '=' + value + '\n';
  }
  for (const auto& [name, value] : request.headers) {
    require(value.find_first_of(std::string("\r\n\0", 3)) == std::string::npos);
    require(request.header(name) != nullptr);
  }
  return text + parser.take_body();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = outcome(bytes, std::max<size_t>(size, 1));
  require(outcome(bytes, 1) == whole);
  require(outcome(bytes, 7) == whole);
  return 0;
}
