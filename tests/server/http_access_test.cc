// Keys and CORS over the wire.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/http_server.h"
#include "server/server_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

TEST(HttpKeys, AreRequiredWhereTheyAreSaidTo) {
  HttpServerOptions options;
  options.api_keys = {"sk-first", "sk-second"};
  options.is_public = [](const HttpRequest& request) { return request.path == "/health"; };
  HttpServer server(options, echo);
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/health")).status, 200);
  EXPECT_EQ(client.ask(get("/a", "Authorization: Bearer sk-first\r\n")).status, 200);
  EXPECT_EQ(client.ask(get("/a", "authorization: bearer sk-second\r\n")).status, 200);
  for (const char* header :
       {"", "Authorization: Bearer sk-third\r\n", "Authorization: sk-first\r\n",
        "Authorization: Bearer sk-first, Bearer x\r\n"}) {
    const HttpAnswer answer = client.ask(get("/a", header));
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.header("www-authenticate"), "Bearer");
    EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["type"], "authentication_error");
    EXPECT_EQ(answer.header("connection"), "");  // the request was read to its end
  }
  EXPECT_EQ(client.ask(get("/health/../a")).status, 401);
}

TEST(HttpKeys, NoBodyIsReadWithoutOne) {
  HttpServerOptions options;
  options.api_keys = {"sk"};
  HttpServer server(options, echo);
  Client client(server.port());
  // Neither invited to go on nor waited for.
  const HttpAnswer answer = client.ask(
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.closed());
}

TEST(HttpAccess, PagesOfOtherSitesCannotReachThisMachine) {
  HttpServerOptions options;
  options.only_this_machine = true;
  options.cors_origins = {"https://page.example"};
  HttpServer server(options, echo);
  Client client(server.port());
  const auto status = [&](const std::string& headers) {
    return client.ask("GET /a HTTP/1.1\r\n" + headers + "\r\n").status;
  };
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3",
                           "[::1]", "[::1]:8080"}) {
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", host)), 200) << host;
    EXPECT_EQ(status(fmt::format("Host: {0}\r\nOrigin: http://{0}\r\n", host)), 200) << host;
  }
  EXPECT_EQ(status("Host: localhost\r\nOrigin: https://page.example\r\n"), 200);
  for (const char* host : {"rebound.example", "rebound.example:8080", "localhost.example", "",
                           ":80", "127.0.0.1.example", "[::2]:80", "0.0.0.0", "192.168.0.1"}) {
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", host)), 403) << host;
  }
  for (const char* origin :
       {"https://other.example", "null", "", "file://", "http://localhost.example",
        "http://rebound.example:80", "localhost"}) {
    EXPECT_EQ(status(fmt::format("Host: localhost\r\nOrigin: {}\r\n", origin)), 403) << origin;
  }
}

TEST(HttpCors, PreflightNeedsNoKey) {
  HttpServerOptions options;
  options.api_keys = {"sk"};
  options.cors_origins = {"https://page.example"};
  HttpServer server(options, echo);
  Client client(server.port());
  const HttpAnswer allowed = client.ask(
      request_text("OPTIONS", "/v1/completions", {},
                   "Origin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n"
                   "Access-Control-Request-Headers: authorization, content-type\r\n"));
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(allowed.header("vary"), "Origin");
  EXPECT_EQ(allowed.header("access-control-allow-headers"), "authorization, content-type");
  EXPECT_NE(allowed.header("access-control-allow-methods").find("POST"), std::string::npos);
  const HttpAnswer other = client.ask(
      request_text("OPTIONS", "/v1/completions", {},
                   "Origin: https://other.example\r\nAccess-Control-Request-Method: POST\r\n"));
  EXPECT_EQ(other.status, 204);
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0U);
  EXPECT_EQ(other.headers.count("access-control-allow-methods"), 0U);
  EXPECT_EQ(other.header("vary"), "Origin");
}

TEST(HttpCors, EveryAnswerSaysWhoMayReadIt) {
  HttpServerOptions options;
  options.api_keys = {"sk"};
  options.cors_origins = {"*"};
  HttpServer server(options, echo);
  Client client(server.port());
  const std::string origin = "Origin: https://page.example\r\n";
  const HttpAnswer answers[] = {
      client.ask(get("/", origin + "Authorization: Bearer sk\r\n")),
      client.ask(get("/", origin)),
      client.ask(get("/%zz", origin)),
  };
  for (const HttpAnswer& answer : answers) {
    EXPECT_EQ(answer.header("access-control-allow-origin"), "*") << answer.status;
  }
  EXPECT_EQ(answers[0].status, 200);
  EXPECT_EQ(answers[1].status, 401);
  EXPECT_EQ(answers[2].status, 400);
}

}  // namespace
}  // namespace adder
