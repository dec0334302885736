// The page at "/": one document of the files in server/web, which are compiled into the program.
#pragma once

#include <string>
#include <string_view>

#include "server/http_request.h"

namespace adder {

struct WebPage {
  std::string_view html;
  std::string etag;
  // Content-Security-Policy and the like. Only the page's own style and script may run, by their
  // hashes, and it may talk to this server alone.
  HttpHeaders headers;
};

const WebPage& web_page();

// "default-src 'none'; ..." for a page with inline <style> and <script> elements.
std::string content_security_policy(std::string_view html);

}  // namespace adder
