// What a hostile or broken client meets.
#include <atomic>
#include <random>
#include <thread>

#include "server/http_server.h"
#include "server/server_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

bool is_alive(const HttpServer& server) {
  Client client(server.port());
  return client.ask(get("/alive", "Authorization: Bearer key\r\n")).status == 200;
}

// Each request on a connection of its own; what is refused must not keep the connection, unless all
// of the request was understood.
struct Refusal {
  std::string request;
  int status;
};

TEST(HttpHostile, MalformedRequestsGetTheRightStatus) {
  HttpServer server({}, echo);
  const std::string host = "Host: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\n" + host;
  const Refusal cases[] = {
      // request line
      {"GARBAGE\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1 \r\n" + host + "\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / HTTP/1.2\r\n" + host + "\r\n", 505},
      {"GET / HTTX/1.1\r\n" + host + "\r\n", 400},
      {"GET /a b HTTP/1.1\r\n" + host + "\r\n", 400},
      {std::string("GET /a\0b HTTP/1.1\r\n", 19) + host + "\r\n", 400},
      {std::string("\0\0\0\0\r\n\r\n", 8), 400},
      {"\x16\x03\x01\x02", 400},  // the first bytes of TLS
      {" GET / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\n" + host + "\n\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"get / HTTP/1.1\r\n" + host + "\r\n", 501},
      {"BREW / HTTP/1.1\r\n" + host + "\r\n", 501},
      {"TRACE / HTTP/1.1\r\n" + host + "\r\n", 405},
      {"CONNECT a:80 HTTP/1.1\r\n" + host + "\r\n", 405},
      {"GET * HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET a HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%2 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /?a=%c3 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /#f HTTP/1.1\r\n" + host + "\r\n", 400},
      // headers
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "no colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "space : before\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + ": no name\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + std::string("a: b\0c\r\n\r\n", 10), 400},
      {"GET / HTTP/1.1\r\n" + host + "a: b\rc\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "Expect: wonders\r\n\r\n", 417},
      // lengths
      {post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {post + "Content-Length: 3, 3\r\n\r\nabc", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: +3\r\n\r\nabc", 400},
      {post + "Content-Length: 0x3\r\n\r\nabc", 400},
      {post + "Content-Length: 3 \t3\r\n\r\nabc", 400},
      {post + "Content-Length:\r\n\r\n", 400},
      {post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {post + "Content-Length: 18446744073709551615\r\n\r\n", 413},
      {post + "Content-Length: 16777217\r\n\r\n", 413},
      {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: identity\r\n\r\n", 501},
      {post + "Transfer-Encoding: chunked, gzip\r\n\r\n", 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      // chunks
      {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1000001\r\n", 413},
      {post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(40'000, 'x'), 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n1 x\r\na\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n0\r\na\rb: c\r\n\r\n", 400},
  };
  for (const Refusal& refusal : cases) {
    SCOPED_TRACE(refusal.request.substr(0, 200));
    Client client(server.port());
    const HttpAnswer answer = client.ask(refusal.request);
    EXPECT_EQ(answer.status, refusal.status) << answer.body;
    EXPECT_TRUE(answer.complete);
    EXPECT_TRUE(answer.body.starts_with(R"({"error":{)")) << answer.body;
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(client.closed());
  }
  EXPECT_TRUE(is_alive(server));
}

TEST(HttpHostile, MethodsThatAreNotServed) {
  HttpServerOptions options;
  options.methods = {"GET"};
  HttpServer server(options, echo);
  Client client(server.port());
  const HttpAnswer answer = client.ask(request_text("DELETE", "/"));
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("allow"), "GET");
}

TEST(HttpHostile, BodiesOfAllRequestsAreBoundedTogether) {
  HttpServerOptions options;
  options.bodies_limit = 10'000;
  HttpServer server(options, echo);
  const std::string begin = request_text("POST", "/", std::string(7000, 'a'));
  const std::string most = begin.substr(0, begin.size() - 1);
  Client first(server.port());
  first.send(most);
  ASSERT_TRUE(eventually([&] { return server.stats().bytes_in >= most.size(); }));
  Client second(server.port());
  second.send(most);
  const HttpAnswer refused = second.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  first.send("a");
  EXPECT_EQ(first.receive().status, 200);
  Client third(server.port());
  EXPECT_EQ(third.ask(begin).status, 200);
  EXPECT_EQ(third.ask(begin).status, 200);  // what an answered request held is free again
}

TEST(HttpHostile, SizesAreBounded) {
  HttpServerOptions options;
  options.url_limit = 1000;
  options.header_limit = 4000;
  options.body_limit = 5000;
  HttpServer server(options, echo);
  const auto status = [&](const std::string& text) {
    Client client(server.port());
    client.send(text);
    const int got = client.receive().status;
    EXPECT_TRUE(got == 200 || client.closed());
    return got;
  };
  EXPECT_EQ(status(get("/" + std::string(999, 'a'))), 200);
  EXPECT_EQ(status(get("/" + std::string(1000, 'a'))), 414);
  EXPECT_EQ(status("GET /" + std::string(1'000'000, 'a')), 414);
  EXPECT_EQ(status(get("/", "a: " + std::string(3900, 'b') + "\r\n")), 200);
  EXPECT_EQ(status(get("/", "a: " + std::string(4000, 'b') + "\r\n")), 431);
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "a: b\r\n";
  EXPECT_EQ(status(get("/", many)), 431);
  EXPECT_EQ(status(request_text("POST", "/", std::string(5000, 'a'))), 200);
  EXPECT_EQ(status(request_text("POST", "/", std::string(5001, 'a'))), 413);
  // The answer arrives although the body is still being sent.
  EXPECT_EQ(status(request_text("POST", "/", std::string(3'000'000, 'a'))), 413);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunks;
  for (int i = 0; i < 5000; ++i) chunks += "1\r\na\r\n";
  EXPECT_EQ(status(chunked + chunks + "0\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + chunks + "1\r\na\r\n0\r\n\r\n"), 413);
  EXPECT_EQ(status(chunked + "0\r\n" + many), 400);  // trailers
  EXPECT_TRUE(is_alive(server));
}

// Sends a byte now and then, until an answer begins; a byte must not buy more time.
void drip(Client& client) {
  const auto start = std::chrono::steady_clock::now();
  bool answered = false;
  while (!answered && std::chrono::steady_clock::now() - start < kPatience) {
    client.send("a");
    answered = client.receive_more(milliseconds(20));
  }
}

TEST(HttpHostile, SlowHeadersAreCutWhateverTheyDrip) {
  HttpServerOptions options;
  options.header_timeout = milliseconds(300);
  HttpServer server(options, echo);
  Client client(server.port());
  client.send("GET / HTTP/1.1\r\n");
  drip(client);
  EXPECT_EQ(client.receive().status, 408);
  EXPECT_TRUE(client.closed());
  Client silent(server.port());
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(silent.unread(), "");
  EXPECT_EQ(server.stats().timeouts, 1U);
  EXPECT_TRUE(is_alive(server));
}

TEST(HttpHostile, SlowBodiesAreCutButSteadyOnesAreNot) {
  HttpServerOptions options;
  options.body_timeout = milliseconds(400);
  options.body_rate = 1000;
  HttpServer server(options, echo);
  Client slow(server.port());
  slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
  drip(slow);
  EXPECT_EQ(slow.receive().status, 408);
  EXPECT_TRUE(slow.closed());
  // 20 times the base time-out, but faster than body_rate.
  Client steady(server.port());
  steady.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n");
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(steady.send(std::string(1000, 'b')));
    ::poll(nullptr, 0, 20);
  }
  EXPECT_EQ(steady.receive().status, 200);
}

TEST(HttpHostile, IdleConnectionsAreClosed) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(200);
  HttpServer server(options, echo);
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/")).status, 200);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(client.unread(), "");
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_EQ(server.stats().timeouts, 0U);
}

TEST(HttpHostile, AClientThatNeverReadsIsDroppedInTime) {
  HttpServerOptions options;
  options.write_timeout = milliseconds(300);
  options.stream_limit = size_t{1} << 30;
  Mailbox mail;
  HttpServer server(options, mail.handler());
  Client client(server.port(), nullptr, 4096);
  client.send(get("/"));
  const auto reply = mail.next().reply;
  std::atomic<int> told{0};
  reply->on_gone([&] { ++told; });
  reply->send(200, "text/plain", std::string(50'000'000, 'x'));
  // An answer that is finished tells nobody any more.
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_EQ(told, 0);
  EXPECT_EQ(server.stats().timeouts, 1U);
  EXPECT_EQ(server.stats().gone, 1U);

  Client second(server.port(), nullptr, 4096);
  second.send(get("/"));
  const auto stream = mail.next().reply;
  stream->on_gone([&] { ++told; });
  stream->begin_stream(200, "text/plain");
  for (int i = 0; i < 50; ++i) stream->write(std::string(1'000'000, 'x'));
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_TRUE(stream->gone());
}

TEST(HttpHostile, AStreamThatIsReadTooSlowlyIsDropped) {
  HttpServerOptions options;
  options.stream_limit = 100'000;
  Mailbox mail;
  Records records;
  options.on_request_done = records.callback();
  HttpServer server(options, mail.handler());
  Client client(server.port(), nullptr, 4096);
  client.send(get("/"));
  const auto reply = mail.next().reply;
  std::atomic<int> told{0};
  reply->on_gone([&] { ++told; });
  reply->begin_stream(200, "text/plain");
  int written = 0;
  while (!reply->gone() && written < 20'000) {
    reply->write(std::string(1000, 'x'));
    ++written;
  }
  EXPECT_TRUE(reply->gone());
  EXPECT_LT(written, 20'000);  // what the kernel holds, and the limit
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_EQ(server.stats().gone, 1U);
  const auto done = records.wait_for(1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, 200);
  EXPECT_FALSE(done[0].complete);
  reply->write("more");
  reply->end();
  EXPECT_TRUE(reply->gone());
}

TEST(HttpHostile, TooManyConnectionsAreRefused) {
  HttpServerOptions options;
  options.max_connections = 3;
  options.refusable_connections = 2;
  HttpServer server(options, echo);
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port());
    ASSERT_EQ(clients.back().ask(get("/")).status, 200);
  }
  for (int i = 0; i < 2; ++i) {
    Client refused(server.port());
    const HttpAnswer answer = refused.ask(request_text("POST", "/", "body"));
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.header("retry-after"), "1");
    EXPECT_TRUE(refused.closed());
  }
  EXPECT_TRUE(eventually([&] { return server.stats().open == 3; }));
  Client fourth(server.port()), fifth(server.port());
  EXPECT_TRUE(eventually([&] { return server.stats().open == 5; }));
  Client sixth(server.port());
  EXPECT_TRUE(sixth.closed());
  EXPECT_EQ(server.stats().refused, 5U);
  clients.clear();
  fourth.close();
  fifth.close();
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_TRUE(is_alive(server));
}

TEST(HttpHostile, AnsweredConnectionsDoNotCountOnceBothSidesAreClosed) {
  HttpServerOptions options;
  options.max_connections = 4;
  HttpServer server(options, echo);
  for (int i = 0; i < 12; ++i) {  // far faster than the time that a silent client is given
    Client client(server.port());
    EXPECT_EQ(client.ask(get("/", "Connection: close\r\n")).status, 200);
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(server.stats().refused, 0U);
}

TEST(HttpHostile, ConnectionsCutInEveryPhase) {
  Mailbox mail;
  Records records;
  HttpServerOptions options;
  options.on_request_done = records.callback();
  HttpServer server(options, mail.handler());
  const std::string text = request_text("POST", "/", std::string(100, 'x'));
  for (const bool hard : {false, true}) {
    for (size_t sent = 0; sent < text.size(); sent += 7) {
      Client client(server.port());
      client.send(text.substr(0, sent));
      if (hard) client.reset();
    }
    EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
    EXPECT_TRUE(mail.empty());

    const auto expect_told = [&](const auto& before, const auto& after) {
      Client client(server.port());
      client.send(text);
      const auto reply = mail.next().reply;
      std::atomic<int> told{0};
      reply->on_gone([&] { ++told; });
      before(*reply, client);
      EXPECT_FALSE(reply->gone());
      hard ? client.reset() : client.close();
      EXPECT_TRUE(eventually([&] { return told == 1; }));
      EXPECT_TRUE(reply->gone());
      after(*reply);
      EXPECT_EQ(told, 1);
    };
    const auto nothing = [](HttpReply&, Client&) {};
    expect_told(nothing, [](HttpReply&) {});
    expect_told(nothing, [](HttpReply& reply) { reply.send(200, "text/plain", "too late"); });
    expect_told(
        [](HttpReply& reply, Client& client) {
          reply.begin_stream(200, "text/plain");
          reply.write("first");
          EXPECT_EQ(client.receive_head().status, 200);
          EXPECT_EQ(client.receive_chunk(), "first");
        },
        [](HttpReply& reply) {
          for (int i = 0; i < 100; ++i) reply.write(std::string(10'000, 'y'));
          reply.end();
        });
    EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
    EXPECT_EQ(server.stats().running, 0U);
  }
  const auto done = records.wait_for(6);
  ASSERT_EQ(done.size(), 6U);
  for (const size_t i : {0U, 3U, 4U}) {  // [1] and [2] may have been handed over
    EXPECT_EQ(done[i].status, 499);
    EXPECT_FALSE(done[i].complete);
  }
  EXPECT_EQ(server.stats().gone, 6U);
}

TEST(HttpHostile, AClientThatLeavesBehindUnreadBytesIsNoticed) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  const auto reply = mail.next().reply;
  // More than is read ahead, so that the end of the client lies behind bytes nobody reads. Far
  // more, and the end could not even be sent.
  client.send(request_text("POST", "/next", std::string(120'000, 'x')));
  EXPECT_FALSE(reply->gone());
  client.half_close();
  EXPECT_TRUE(eventually([&] { return reply->gone(); }));
}

TEST(HttpHostile, AHalfClosedClientStillGetsItsAnswer) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  client.half_close();
  const auto reply = mail.next().reply;
  EXPECT_TRUE(eventually([&] { return reply->gone(); }));
  reply->send(200, "text/plain", "for the record");
  EXPECT_EQ(client.receive().body, "for the record");
  EXPECT_TRUE(client.closed());
}

// Requests built from parts and then damaged, 100 connections at a time.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string next() {
    std::string text = "POST / HTTP/1.1";
    if (below(2) == 0) {
      text = pick({"GET", "POST", "HEAD", "OPTIONS", "PUT", "get", "BREW", ""}) +
             pick({" ", " ", " ", "  ", ""}) +
             pick({"/", "/a/b?c=d", "*", "/%41%", "http://a/b", "/\xff", "/%00"}) +
             pick({" HTTP/1.1", " HTTP/1.1", " HTTP/1.0", " HTTP/9.9", ""});
    }
    text += "\r\n";
    if (below(4) != 0) text += "Host: a\r\n";
    for (uint32_t i = below(4); i > 0; --i) {
      text += pick({"Host: a", "Accept: x", "Content-Length: 5", "Content-Length: 99999999999",
                    "Transfer-Encoding: chunked", "Transfer-Encoding: x", "Expect: 100-continue",
                    "Connection: close", "Connection: keep-alive", "Authorization: Bearer key",
                    "Origin: https://a", " folded", "bad", ":", "Content-Length: -5"}) +
              "\r\n";
    }
    text += pick({"\r\n", "\r\n", "\n", ""});
    text +=
        pick({"", "hello", "5\r\nhello\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "0\r\na: b\r\n\r\n"});
    for (uint32_t i = below(3); i > 0 && !text.empty(); --i) {
      const size_t at = below(static_cast<uint32_t>(text.size()));
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, below(10));
          break;
        case 2:
          text.insert(at, 1, static_cast<char>(below(256)));
          break;
        default:
          text.insert(at, text.substr(below(static_cast<uint32_t>(text.size())), below(40)));
      }
    }
    return text;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  std::string pick(std::initializer_list<const char*> choices) {
    return choices.begin()[below(static_cast<uint32_t>(choices.size()))];
  }
  std::mt19937 random_;
};

TEST(HttpHostile, TenThousandMutatedRequests) {
  HttpServerOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = milliseconds(300);
  options.api_keys = {"key"};
  options.is_public = [](const HttpRequest& request) { return request.path == "/"; };
  options.cors_origins = {"https://a"};
  HttpServer server(options, echo);
  Mutator mutator(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<Client> clients;
    for (int i = 0; i < 100; ++i) {
      clients.emplace_back(server.port());
      const std::string text = mutator.next();
      clients.back().send(text);
      // Most say that this was all; the others must be ended by the server, which takes its time.
      if (round % 10 != 0 || i % 10 != 0) clients.back().half_close();
    }
    for (Client& client : clients) {
      while (client.receive_more()) {
      }
      ASSERT_TRUE(client.closed(milliseconds(0)));
      const std::string& answer = client.unread();
      if (answer.empty()) continue;
      ASSERT_TRUE(answer.starts_with("HTTP/1.1 ")) << answer;
      ASSERT_NE(std::string_view("1245").find(answer[9]), std::string_view::npos) << answer;
    }
  }
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_EQ(server.stats().running, 0U);
  EXPECT_GT(server.stats().answers_by_class[2], 100U);
  EXPECT_GT(server.stats().answers_by_class[4], 1000U);
  EXPECT_TRUE(is_alive(server));
}

}  // namespace
}  // namespace adder
