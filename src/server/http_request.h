// A request as a handler sees it, and the parts of reading one that need no socket.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adder {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET" for HEAD too: the server leaves out the body of the answer
  std::string path;    // as sent, "/v1/models"; never empty
  std::vector<std::string> segments;  // of the path, percent-decoded UTF-8: {"v1", "models"}
  HttpHeaders query;                  // names and values, percent-decoded UTF-8, in their order
  HttpHeaders headers;                // as sent, white space around the values removed
  std::string body;
  std::string client;  // "127.0.0.1:4711", "[::1]:4711"

  // The first header of that name, whatever the case of its letters; null if there is none.
  const std::string* header(std::string_view name) const;
  // The first query parameter of that name; null if there is none.
  const std::string* parameter(std::string_view name) const;
};

// A request that the server answers with an error itself. what() is for the client.
class HttpRefusal : public std::runtime_error {
 public:
  HttpRefusal(int status, const std::string& message, HttpHeaders headers = {})
      : std::runtime_error(message), status_(status), headers_(std::move(headers)) {}
  int status() const { return status_; }
  const HttpHeaders& headers() const { return headers_; }

 private:
  int status_;
  HttpHeaders headers_;
};

// Sets path, segments and query from the target of a request line: "/a/b?c=d", or with a scheme and
// a host before it. Throws HttpRefusal(400) for other forms, bad percent-escapes, control
// characters and what is not UTF-8.
void parse_target(std::string_view target, HttpRequest& request);

// The text with %XX decoded and, for a query, '+' as a space. Nothing where an escape is cut short
// or no hexadecimal number.
std::optional<std::string> percent_decoded(std::string_view text, bool is_query);

// ASCII only, as HTTP's names are.
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace adder
