#include "server/web_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <string>
#include <utility>

#include "core/error.h"

// As engine/demo_model.cc does it. ADDER_WEB_DIR is set by the build.
// NOLINTBEGIN(bugprone-macro-parentheses): the arguments become parts of a string
#define ADDER_EMBED(symbol, file)                                                         \
  asm(".section .rodata\n.global " #symbol ", " #symbol "_end\n" #symbol                  \
      ":\n.incbin \"" ADDER_WEB_DIR "/" file "\"\n" #symbol "_end:\n.byte 0\n.previous"); \
  extern "C" const char symbol[], symbol##_end[];
// NOLINTEND(bugprone-macro-parentheses)

ADDER_EMBED(adder_web_index, "index.html")
ADDER_EMBED(adder_web_style, "style.css")
ADDER_EMBED(adder_web_base, "base.js")
ADDER_EMBED(adder_web_answers, "answers.js")
ADDER_EMBED(adder_web_sessions, "sessions.js")
ADDER_EMBED(adder_web_plot, "plot.js")
ADDER_EMBED(adder_web_events, "events.js")

namespace adder {
namespace {

// SHA-256 in base64, as browsers compute it of an inline element.
std::string digest(std::string_view text) {
  std::array<unsigned char, 32> hash{};
  if (EVP_Digest(text.data(), text.size(), hash.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-256 of the page failed");
  }
  std::array<unsigned char, 45> encoded{};
  const int length = EVP_EncodeBlock(encoded.data(), hash.data(), static_cast<int>(hash.size()));
  return std::string(encoded.begin(), encoded.begin() + length);
}

// 'sha256-...' of the text of every such element; 'none' when there is no such element.
std::string sources(std::string_view html, std::string_view element) {
  const std::string open = fmt::format("<{}>", element), close = fmt::format("</{}>", element);
  std::string list;
  // A comment may speak of an element without being one.
  for (size_t at = html.find("\n" + open); at != std::string_view::npos;
       at = html.find("\n" + open, at)) {
    at += 1 + open.size();
    const size_t end = html.find(close, at);
    if (end == std::string_view::npos) break;
    if (!list.empty()) list += ' ';
    list += fmt::format("'sha256-{}'", digest(html.substr(at, end - at)));
  }
  return list.empty() ? "'none'" : list;
}

// index.html with the other files in place of the lines that name them.
std::string put_together() {
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@style.css@\n", {adder_web_style, adder_web_style_end}},
      {"@base.js@\n", {adder_web_base, adder_web_base_end}},
      {"@answers.js@\n", {adder_web_answers, adder_web_answers_end}},
      {"@sessions.js@\n", {adder_web_sessions, adder_web_sessions_end}},
      {"@plot.js@\n", {adder_web_plot, adder_web_plot_end}},
      {"@events.js@\n", {adder_web_events, adder_web_events_end}}};
  std::string html(adder_web_index, adder_web_index_end);
  for (const auto& [line, text] : parts) {
    const size_t at = html.find(line);
    if (at == std::string::npos) fail(ErrorCode::kInternal, "the page has no line {}", line);
    html.replace(at, line.size(), text);
  }
  return html;
}

WebPage make_page() {
  static const std::string html = put_together();
  WebPage page;
  page.html = html;
  page.etag = fmt::format("\"{}\"", digest(page.html).substr(0, 22));
  page.headers = {{"Content-Security-Policy", content_security_policy(page.html)},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Opener-Policy", "same-origin"},
                  {"Cache-Control", "no-cache"},
                  {"ETag", page.etag}};
  return page;
}

}  // namespace

std::string content_security_policy(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      sources(html, "script"), sources(html, "style"));
}

const WebPage& web_page() {
  static const WebPage page = make_page();
  return page;
}

}  // namespace adder
