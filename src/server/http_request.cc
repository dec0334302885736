#include "server/http_request.h"

#include <algorithm>

#include "text/unicode.h"

namespace adder {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

const std::string* find(const HttpHeaders& pairs, std::string_view name, bool any_case) {
  for (const auto& [key, value] : pairs) {
    if (any_case ? equals_ignoring_case(key, name) : key == name) return &value;
  }
  return nullptr;
}

std::string decoded(std::string_view text, bool is_query) {
  std::optional<std::string> plain = percent_decoded(text, is_query);
  if (!plain) {
    throw HttpRefusal(400, "URL: expected two hexadecimal digits after each '%'");
  }
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  // Line ends and tabs are data in a query, but nothing that a path is made of; NUL is neither.
  const auto bad = [&](char c) { return is_query ? c == '\0' : control(c); };
  if (std::any_of(plain->begin(), plain->end(), bad)) {
    throw HttpRefusal(400, "URL: expected no control characters");
  }
  if (!is_valid_utf8(*plain)) throw HttpRefusal(400, "URL: expected UTF-8");
  return std::move(*plain);
}

// The next piece of `text` up to `separator`, which is removed with it.
std::string_view next_piece(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

// "http://host/path" as "/path": the form in which a proxy is asked.
std::string_view without_authority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) throw HttpRefusal(400, "URL: expected a host after the scheme");
    return target.substr(end);
  }
  if (!target.starts_with('/')) throw HttpRefusal(400, "URL: expected a path that begins with '/'");
  return target;
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  return find(headers, name, true);
}

const std::string* HttpRequest::parameter(std::string_view name) const {
  return find(query, name, false);
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string> percent_decoded(std::string_view text, bool is_query) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (c == '%') {
      if (at + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[at + 1]), low = hex_digit(text[at + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      at += 2;
    } else if (c == '+' && is_query) {
      c = ' ';
    }
    out += c;
  }
  return out;
}

void parse_target(std::string_view target, HttpRequest& request) {
  if (target.find('#') != std::string_view::npos) {
    throw HttpRefusal(400, "URL: expected no fragment");
  }
  std::string_view rest = without_authority(target);
  std::string_view path = next_piece(rest, '?');
  request.path = path.empty() ? "/" : path;
  while (!path.empty()) {
    const std::string_view segment = next_piece(path, '/');
    if (!segment.empty()) request.segments.push_back(decoded(segment, false));
  }
  while (!rest.empty()) {
    std::string_view value = next_piece(rest, '&');
    if (value.empty()) continue;
    const std::string_view name = next_piece(value, '=');
    request.query.emplace_back(decoded(name, true), decoded(value, true));
  }
}

}  // namespace adder
