// What a well-behaved client meets.
#include "server/http_server.h"

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "server/server_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

std::string error_message(const HttpAnswer& answer) {
  const auto body = nlohmann::json::parse(answer.body, nullptr, false);
  if (body.is_discarded()) return "no JSON: " + answer.body;
  return body["error"]["message"].get<std::string>();
}

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  Records records;
  HttpServerOptions options;
  options.on_request_done = records.callback();
  HttpServer server(options, echo);
  ASSERT_GT(server.port(), 0);
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer =
        client.ask(request_text("POST", "/a/" + std::to_string(i) + "?b=c", "body"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.body, "POST /a/" + std::to_string(i) + "\nb=c\nbody");
    EXPECT_EQ(answer.header("content-type"), "text/plain");
    EXPECT_EQ(answer.header("x-content-type-options"), "nosniff");
    EXPECT_EQ(answer.header("connection"), "");
    EXPECT_TRUE(answer.header("date").ends_with(" GMT")) << answer.header("date");
  }
  const auto done = records.wait_for(3);
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(done[2].method, "POST");
  EXPECT_EQ(done[2].path, "/a/2");
  EXPECT_EQ(done[2].status, 200);
  EXPECT_TRUE(done[2].client.starts_with("127.0.0.1:")) << done[2].client;
  EXPECT_TRUE(done[2].complete);
  EXPECT_GT(done[2].bytes, 100U);
  EXPECT_GE(done[2].seconds, 0);
  const HttpStats stats = server.stats();
  EXPECT_EQ(stats.accepted, 1U);
  EXPECT_EQ(stats.open, 1U);
  EXPECT_EQ(stats.requests, 3U);
  EXPECT_EQ(stats.running, 0U);
  EXPECT_EQ(stats.gone, 0U);
  EXPECT_EQ(stats.answers_by_class[2], 3U);
  EXPECT_EQ(stats.bytes_out, done[0].bytes + done[1].bytes + done[2].bytes);
}

TEST(HttpServer, RequestsInAnyPieces) {
  HttpServer server({}, echo);
  const std::string text = request_text("POST", "/a", "0123456789");
  for (const size_t piece : {1U, 2U, 3U, 7U, 50U}) {
    Client client(server.port());
    for (size_t at = 0; at < text.size(); at += piece) {
      ASSERT_TRUE(client.send(text.substr(at, piece)));
      if (piece > 2) ::poll(nullptr, 0, 1);
    }
    EXPECT_EQ(client.receive().body, "POST /a\n0123456789");
  }
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  HttpServer server({}, echo);
  Client client(server.port());
  std::string all;
  for (int i = 0; i < 500; ++i) {
    // An empty line between requests is overlooked.
    all += request_text("POST", "/" + std::to_string(i), std::string(i % 5, 'x')) + "\r\n";
  }
  // From another thread: neither side may have to wait for the other to read.
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 500; ++i) {
    const HttpAnswer answer = client.receive();
    ASSERT_EQ(answer.body, "POST /" + std::to_string(i) + "\n" + std::string(i % 5, 'x'));
  }
  sender.join();
}

TEST(HttpServer, BytesAfterARequestWaitUntilItIsAnswered) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  // Far more than is read ahead.
  const std::string large(3'000'000, 'x');
  std::thread sender([&] { client.send(get("/first") + request_text("POST", "/second", large)); });
  auto first = mail.next();
  ASSERT_TRUE(first.reply);
  ::poll(nullptr, 0, 100);
  EXPECT_TRUE(mail.empty());
  EXPECT_FALSE(first.reply->gone());
  first.reply->send(200, "text/plain", "one");
  EXPECT_EQ(client.receive().body, "one");
  auto second = mail.next();
  ASSERT_TRUE(second.reply);
  EXPECT_EQ(second.request.body.size(), large.size());
  second.reply->send(200, "text/plain", "two");
  EXPECT_EQ(client.receive().body, "two");
  sender.join();
}

TEST(HttpServer, Http10) {
  HttpServer server({}, [](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
    if (request.path == "/stream") {
      reply->begin_stream(200, "text/plain");
      reply->write("one ");
      reply->write("two");
      reply->end();
    } else {
      reply->send(200, "text/plain", "plain");
    }
  });
  {
    Client client(server.port());
    const HttpAnswer answer = client.ask("GET / HTTP/1.0\r\n\r\n");
    EXPECT_EQ(answer.body, "plain");
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(client.closed());
  }
  Client client(server.port());
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(answer.body, "plain");
    EXPECT_EQ(answer.header("connection"), "keep-alive");
  }
  const HttpAnswer answer = client.ask("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(answer.body, "one two");
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.header("transfer-encoding"), "");
  EXPECT_EQ(answer.header("connection"), "close");
}

TEST(HttpServer, ConnectionCloseIsObeyed) {
  HttpServer server({}, echo);
  Client client(server.port());
  const HttpAnswer answer = client.ask(get("/", "Connection: close\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(client.unread(), "");
}

TEST(HttpServer, HeadHasTheHeadersOfGetOnly) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(request_text("HEAD", "/a"));
  auto letter = mail.next();
  ASSERT_TRUE(letter.reply);
  EXPECT_EQ(letter.request.method, "GET");
  letter.reply->send(200, "text/plain", "four");
  const HttpAnswer answer = client.receive(true);
  EXPECT_EQ(answer.header("content-length"), "4");
  client.send(request_text("HEAD", "/stream"));
  letter = mail.next();
  letter.reply->begin_stream(200, "text/plain");
  letter.reply->write("nothing of this");
  letter.reply->end();
  EXPECT_EQ(client.receive(true).status, 200);
  // The next answer begins where that one ended.
  client.send(get("/b"));
  mail.next().reply->send(200, "text/plain", "after");
  EXPECT_EQ(client.receive().body, "after");
}

TEST(HttpServer, NoContentHasNoLength) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/a"));
  mail.next().reply->send(204, "", "not sent");
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.count("content-length"), 0U);
  client.send(get("/b"));
  mail.next().reply->send(200, "text/plain", "");
  EXPECT_EQ(client.receive().header("content-length"), "0");
}

TEST(HttpServer, OptionsAreAnsweredHere) {
  HttpServer server({}, [](HttpRequest&&, const std::shared_ptr<HttpReply>&) { ADD_FAILURE(); });
  Client client(server.port());
  for (const char* target : {"*", "/v1/models"}) {
    const HttpAnswer answer = client.ask(request_text("OPTIONS", target));
    EXPECT_EQ(answer.status, 204);
    EXPECT_EQ(answer.header("allow"), "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0U);
  }
}

TEST(HttpServer, ChunkedBodies) {
  HttpServer server({}, echo);
  Client client(server.port());
  const std::string head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
  EXPECT_EQ(
      client.ask(head + "5\r\nhello\r\n1;name=\"v\"\r\n \r\nA\r\n0123456789\r\n0\r\n\r\n").body,
      "POST /a\nhello 0123456789");
  // Trailers are no headers of the request, and the next request follows them.
  EXPECT_EQ(client.ask(head + "2\r\nhi\r\n0\r\nAuthorization: x\r\nb: c\r\n\r\n").body,
            "POST /a\nhi");
  EXPECT_EQ(client.ask(head + "0\r\n\r\n").body, "POST /a\n");
  // Byte by byte.
  for (const char* body : {"3\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n", "0\r\n\r\n"}) {
    for (const char c : head + body) ASSERT_TRUE(client.send({&c, 1}));
    EXPECT_EQ(client.receive().body, body[0] == '3' ? "POST /a\nabcde" : "POST /a\n");
  }
}

TEST(HttpServer, ExpectContinue) {
  HttpServer server({}, echo);
  Client client(server.port());
  const HttpAnswer go_on = client.ask(
      "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(go_on.status, 100);
  EXPECT_EQ(client.ask("body").body, "POST /a\nbody");
  // Not told to go on where the body is there already, or is none.
  EXPECT_EQ(client.ask(request_text("POST", "/b", "body", "Expect: 100-continue\r\n")).status, 200);
  EXPECT_EQ(client.ask(get("/c", "Expect: 100-continue\r\n")).status, 200);
  EXPECT_EQ(client.ask(get("/d", "Expect: miracles\r\n")).status, 417);
}

TEST(HttpServer, AbsoluteTargets) {
  HttpServer server({}, echo);
  Client client(server.port());
  EXPECT_EQ(client.ask(get("http://test:1234/a/b?c=d")).body, "GET /a/b\nc=d\n");
}

TEST(HttpServer, UnansweredRepliesBecome500) {
  Records records;
  HttpServerOptions options;
  options.on_request_done = records.callback();
  HttpServer server(options, [](HttpRequest&& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/throws") throw std::runtime_error("secret of the operator");
    if (request.path == "/throws_number") throw 3;
    if (request.path == "/answers_and_throws") {
      reply->send(200, "text/plain", "fine");
      throw std::runtime_error("too late");
    }
    if (request.path == "/begins_and_throws") {
      reply->begin_stream(200, "text/plain");
      reply->write("half");
      throw std::runtime_error("in between");
    }
  });
  Client client(server.port());
  for (const char* path : {"/forgets", "/throws", "/throws_number"}) {
    SCOPED_TRACE(path);
    const HttpAnswer answer = client.ask(get(path));
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(error_message(answer), "the server had an error while it worked on this request");
    EXPECT_EQ(answer.header("content-type"), "application/json");
  }
  EXPECT_EQ(client.ask(get("/answers_and_throws")).body, "fine");
  const HttpAnswer cut = client.ask(get("/begins_and_throws"));
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(cut.body, "half");
  EXPECT_FALSE(cut.complete);
  const auto done = records.wait_for(5);
  ASSERT_EQ(done.size(), 5U);
  EXPECT_EQ(done[0].error, "");
  EXPECT_EQ(done[1].error, "secret of the operator");
  EXPECT_EQ(done[2].error, "unknown exception");
  EXPECT_EQ(done[3].status, 200);
  EXPECT_FALSE(done[4].complete);
  EXPECT_EQ(server.stats().running, 0U);
}

TEST(HttpServer, ErrorsAreRenderedByTheOption) {
  HttpServerOptions options;
  options.render_error = [](int status, std::string_view message) {
    return std::to_string(status) + "|" + std::string(message);
  };
  HttpServer server(options, [](HttpRequest&&, const std::shared_ptr<HttpReply>&) {});
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/")).body,
            "500|the server had an error while it worked on this request");
  EXPECT_EQ(client.ask("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n").body,
            "400|URL: expected two hexadecimal digits after each '%'");
}

TEST(HttpServer, HeadersOfRepliesStayOneLine) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/a"));
  mail.next().reply->send(200, "text/plain\r\nX-Evil: 1", "body",
                          {{"X-Name", "a\r\nX-Evil: 2\r\n\r\nbody"}, {"X-\r\nEvil", "3"}});
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.headers.count("x-evil"), 0U);
  EXPECT_EQ(answer.header("x-name"), "a  X-Evil: 2    body");
  EXPECT_EQ(answer.body, "body");
}

TEST(HttpServer, CallsOutOfOrderDoNothing) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/a"));
  const auto reply = mail.next().reply;
  reply->write("before the head");
  reply->end();
  reply->send(200, "text/plain", "first");
  reply->send(200, "text/plain", "second");
  reply->begin_stream(200, "text/plain");
  reply->write("third");
  reply->end();
  EXPECT_EQ(client.receive().body, "first");
  client.send(get("/b"));
  mail.next().reply->send(7, "text/plain", "no such status");
  EXPECT_EQ(client.receive().status, 500);
  EXPECT_EQ(client.unread(), "");
}

TEST(HttpServer, LargeAnswers) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  std::string large(20'000'000, ' ');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>('a' + i * 7 % 26);
  client.send(get("/"));
  mail.next().reply->send(200, "text/plain", large);  // one answer is no stream: no limit
  const HttpAnswer answer = client.receive();
  EXPECT_TRUE(answer.body == large);
}

TEST(HttpServer, PlacesThatCannotBeListenedOn) {
  const auto expect_refused = [](const std::string& host, int port, std::string_view part) {
    HttpServerOptions options;
    options.host = host;
    options.port = port;
    try {
      const HttpServer server(options, echo);
      ADD_FAILURE() << "listens on " << host;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
    }
  };
  const HttpServer first({}, echo);
  expect_refused(
      "127.0.0.1", first.port(),
      "cannot listen on 127.0.0.1:" + std::to_string(first.port()) + ": Address already in use");
  expect_refused("192.0.2.1", 0, "cannot listen on 192.0.2.1:0: Cannot assign requested address");
  expect_refused("no such host", 0, "host: cannot resolve 'no such host'");
}

TEST(HttpServer, LocalhostMeansIpv4) {
  HttpServerOptions options;
  options.host = "localhost";
  const HttpServer server(options, echo);
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/")).status, 200);
}

TEST(HttpServer, DrainEndsIdleConnectionsAndWaitsForReplies) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client idle(server.port()), waiting(server.port()), streaming(server.port());
  waiting.send(get("/wait"));
  auto first = mail.next();
  streaming.send(get("/stream"));
  auto second = mail.next();
  second.reply->begin_stream(200, "text/plain");
  EXPECT_EQ(streaming.receive_head().status, 200);
  std::thread drain([&] { server.drain(kPatience); });
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(eventually([&] { return !Client(server.port()).connected(); }));
  EXPECT_TRUE(eventually([&] { return server.stats().open == 2; }));
  EXPECT_FALSE(first.reply->gone());
  first.reply->send(200, "text/plain", "done");
  const HttpAnswer answer = waiting.receive();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(waiting.closed());
  waiting.close();
  second.reply->write("last words");
  second.reply->end();
  EXPECT_EQ(streaming.receive_chunk(), "last words");
  EXPECT_EQ(streaming.receive_chunk(), std::nullopt);
  EXPECT_TRUE(streaming.closed());
  streaming.close();
  drain.join();
  EXPECT_EQ(server.stats().open, 0U);
  EXPECT_EQ(server.stats().gone, 0U);
}

TEST(HttpServer, DrainEndsRepliesThatTakeTooLong) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  const auto letter = mail.next();
  std::atomic<int> told{0};
  letter.reply->on_gone([&] { ++told; });
  server.drain(milliseconds(50));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(letter.reply->gone());
  EXPECT_EQ(client.receive().status, 0);
  EXPECT_EQ(server.stats().open, 0U);
  server.drain(milliseconds(0));  // nothing more to do
}

}  // namespace
}  // namespace adder
