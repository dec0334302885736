#include "server/http_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "server/http_access.h"
#include "server/http_options.h"

namespace adder {
namespace {

HttpRequest parsed(std::string_view target) {
  HttpRequest request;
  parse_target(target, request);
  return request;
}

using Pairs = HttpHeaders;
using Words = std::vector<std::string>;

TEST(HttpTarget, PathSegmentsAndQuery) {
  const HttpRequest request = parsed("/v1/models/a%2Fb%20c?x=1&y=%C3%A9+%2B&x=2&flag&=v&&z=a=b");
  EXPECT_EQ(request.path, "/v1/models/a%2Fb%20c");
  EXPECT_EQ(request.segments, (Words{"v1", "models", "a/b c"}));
  EXPECT_EQ(request.query,
            (Pairs{{"x", "1"}, {"y", "é +"}, {"x", "2"}, {"flag", ""}, {"", "v"}, {"z", "a=b"}}));
  EXPECT_EQ(*request.parameter("x"), "1");
  EXPECT_EQ(request.parameter("X"), nullptr);
  EXPECT_EQ(*request.parameter("flag"), "");
}

TEST(HttpTarget, OddButAllowedForms) {
  EXPECT_EQ(parsed("/").segments, Words{});
  EXPECT_EQ(parsed("//a///b/").segments, (Words{"a", "b"}));
  EXPECT_EQ(parsed("/a?").path, "/a");
  EXPECT_TRUE(parsed("/a?").query.empty());
  EXPECT_EQ(parsed("/a+b").segments, Words{"a+b"});  // '+' is a space in a query only
  EXPECT_EQ(parsed("http://host:80/a?b=c").path, "/a");
  EXPECT_EQ(parsed("HTTPS://host").path, "/");
  EXPECT_EQ(*parsed("http://host?b=c").parameter("b"), "c");
  EXPECT_EQ(parsed("/a?b=%0A").query, (Pairs{{"b", "\n"}}));
  EXPECT_EQ(parsed("/../etc").segments, (Words{"..", "etc"}));  // nothing here reads files
}

TEST(HttpTarget, RefusesTheRest) {
  for (const std::string target :
       {"",     "a",    "*",    "host:80",  "http://", "http:///a",   "/%",
        "/%4",  "/%g0", "/%0g", "/a?%",     "/a?b=%1", "/%00",        "/a?b=%00",
        "/%0a", "/%7f", "/%ff", "/a?b=%C3", "/a#b",    "ftp://host/a"}) {
    SCOPED_TRACE(target);
    try {
      parsed(target);
      ADD_FAILURE() << "accepted";
    } catch (const HttpRefusal& refusal) {
      EXPECT_EQ(refusal.status(), 400);
      EXPECT_TRUE(std::string_view(refusal.what()).starts_with("URL: expected")) << refusal.what();
    }
  }
}

TEST(HttpTarget, PercentDecodingOfEveryByte) {
  for (int c = 0; c < 256; ++c) {
    for (const char* digits : {"0123456789abcdef", "0123456789ABCDEF"}) {
      const std::string escape = {'x', '%', digits[c / 16], digits[c % 16], 'y'};
      EXPECT_EQ(percent_decoded(escape, false), (std::string{'x', static_cast<char>(c), 'y'}));
    }
    const std::string plain(1, static_cast<char>(c));
    if (c != '%') {
      EXPECT_EQ(percent_decoded(plain, true), c == '+' ? " " : plain);
    }
  }
}

TEST(HttpRequestHeaders, AreFoundInAnyCase) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"content-type", "b"}, {"X-Empty", ""}};
  EXPECT_EQ(*request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(*request.header("x-empty"), "");
  EXPECT_EQ(request.header("Content-Typ"), nullptr);
  EXPECT_FALSE(equals_ignoring_case("[", "{"));  // 32 apart, but no letters
}

TEST(HttpOptions, Loopback) {
  for (const char* host :
       {"127.0.0.1", "127.255.0.3", "localhost", "LocalHost", "::1", "[::1]", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"", "0.0.0.0", "::", "[::]", "10.0.0.1", "128.0.0.1", "example.org",
                           "127.0.0.1.example.org", "::ffff:10.0.0.1", "localhost.example.org"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(HttpOptions, ErrorsHaveTheShapeOfOpenAi) {
  const auto body = nlohmann::json::parse(http_error_body(400, "a \"quote\"\n\xff"));
  EXPECT_EQ(body["error"]["message"], "a \"quote\"\n\xef\xbf\xbd");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(body["error"]["param"].is_null());
  EXPECT_TRUE(body["error"]["code"].is_null());
  EXPECT_EQ(nlohmann::json::parse(http_error_body(503, ""))["error"]["type"], "server_error");
  EXPECT_EQ(nlohmann::json::parse(http_error_body(401, ""))["error"]["type"],
            "authentication_error");
  EXPECT_EQ(http_reason(404), "Not Found");
  EXPECT_EQ(http_reason(299), "");
}

TEST(HttpOptions, WrongOnesAreNamed) {
  const auto expect_refused = [](std::string_view part, const auto& change) {
    HttpServerOptions options;
    options.validate();
    change(options);
    try {
      options.validate();
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput);
      EXPECT_TRUE(std::string_view(error.what()).starts_with(part)) << error.what();
    }
  };
  using O = HttpServerOptions;
  expect_refused("port: expected", [](O& o) { o.port = 65536; });
  expect_refused("port: expected", [](O& o) { o.port = -1; });
  expect_refused("host: expected", [](O& o) { o.host.clear(); });
  expect_refused("max_connections: expected", [](O& o) { o.max_connections = 0; });
  expect_refused("body_rate: expected", [](O& o) { o.body_rate = 0; });
  expect_refused("header_timeout: expected",
                 [](O& o) { o.header_timeout = std::chrono::milliseconds(0); });
  expect_refused("api_keys[1]: expected", [](O& o) { o.api_keys = {"good", ""}; });
  expect_refused("api_keys[0]: expected", [](O& o) { o.api_keys = {"a b"}; });
  expect_refused("api_keys[0]: expected", [](O& o) { o.api_keys = {"é"}; });
  expect_refused("cors_origins[0]: expected", [](O& o) { o.cors_origins = {"example.org"}; });
  expect_refused("cors_origins[0]: expected", [](O& o) { o.cors_origins = {"https://a/"}; });
  expect_refused("cors_origins[1]: expected", [](O& o) { o.cors_origins = {"*", "://a"}; });
  expect_refused("tls_key: expected", [](O& o) { o.tls_certificate = "a.pem"; });
  expect_refused("tls_certificate: expected", [](O& o) { o.tls_key = "a.pem"; });
}

TEST(HttpAccess, KeysAreComparedWhole) {
  const ApiKeys keys({"sk-one", "sk-two"});
  EXPECT_TRUE(keys.accepts("Bearer sk-one"));
  EXPECT_TRUE(keys.accepts("bearer   sk-two"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer sk-on", "Bearer sk-one2", "sk-one",
                            "Basic sk-one", "Bearer SK-ONE", "Bearer sk-one "}) {
    EXPECT_FALSE(keys.accepts(wrong)) << wrong;
  }
  EXPECT_TRUE(ApiKeys({}).empty());
  EXPECT_FALSE(ApiKeys({}).accepts("Bearer x"));
}

TEST(HttpAccess, CorsHeaders) {
  HttpRequest request;
  EXPECT_TRUE(CorsPolicy({}).headers(request).empty());
  EXPECT_EQ(CorsPolicy({"*"}).headers(request), (Pairs{{"Access-Control-Allow-Origin", "*"}}));
  const CorsPolicy policy({"https://a.example", "http://localhost:3000"});
  EXPECT_EQ(policy.headers(request), (Pairs{{"Vary", "Origin"}}));
  request.headers = {{"Origin", "https://evil.example"}};
  EXPECT_EQ(policy.headers(request), (Pairs{{"Vary", "Origin"}}));
  request.headers = {{"origin", "http://localhost:3000"}};
  EXPECT_EQ(policy.headers(request),
            (Pairs{{"Vary", "Origin"}, {"Access-Control-Allow-Origin", "http://localhost:3000"}}));
  EXPECT_TRUE(policy.preflight_headers(request, {"GET"}).empty());
  request.headers.emplace_back("Access-Control-Request-Method", "POST");
  request.headers.emplace_back("Access-Control-Request-Headers", "authorization, x-stainless-os");
  const Pairs preflight = policy.preflight_headers(request, {"GET", "POST"});
  EXPECT_EQ(preflight, (Pairs{{"Access-Control-Allow-Methods", "GET, POST"},
                              {"Access-Control-Max-Age", "600"},
                              {"Access-Control-Allow-Headers", "authorization, x-stainless-os"}}));
  request.headers.back().second = "a<script>";
  EXPECT_EQ(policy.preflight_headers(request, {"GET"}).size(), 2U);
}

}  // namespace
}  // namespace adder
