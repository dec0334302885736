#include "server/web_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "core/error.h"

// As engine/demo_model.cc does it. ADDER_WEB_DIR is set by the build.
asm(R"(
  .section .rodata
  .global adder_web_page, adder_web_page_end
adder_web_page:
  .incbin ")" ADDER_WEB_DIR R"(/index.html"
adder_web_page_end:
  .byte 0
  .previous
)");

extern "C" {
extern const char adder_web_page[], adder_web_page_end[];
}

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

WebPage make_page() {
  WebPage page;
  page.html = std::string_view(adder_web_page, adder_web_page_end);
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
