// Replies that are written piece by piece, from other threads, to many clients, and beyond the life
// of the client or the server.
#include <atomic>
#include <thread>

#include "server/http_server.h"
#include "server/server_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

TEST(HttpStream, ChunksLeaveAsTheyAreWritten) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  for (int round = 0; round < 2; ++round) {  // the connection is kept
    client.send(get("/"));
    const auto reply = mail.next().reply;
    reply->begin_stream(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
    const HttpAnswer head = client.receive_head();
    EXPECT_EQ(head.header("content-type"), "text/event-stream");
    EXPECT_EQ(head.header("cache-control"), "no-cache");
    EXPECT_EQ(head.header("transfer-encoding"), "chunked");
    for (int i = 0; i < 20; ++i) {
      const std::string chunk = "data: " + std::to_string(i) + "\n\n";
      reply->write(chunk);
      reply->write("");  // would end the stream if it were sent
      EXPECT_EQ(client.receive_chunk(), chunk);
    }
    reply->end();
    reply->write("after the end");
    EXPECT_EQ(client.receive_chunk(), std::nullopt);
    EXPECT_FALSE(reply->gone());
  }
  EXPECT_EQ(client.unread(), "");
}

TEST(HttpStream, AnUnfinishedStreamIsCut) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  {
    const auto reply = mail.next().reply;
    reply->begin_stream(200, "text/plain");
    reply->write("half");
  }
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.body, "half");
  EXPECT_FALSE(answer.complete);
}

TEST(HttpStream, ThreeHundredAtOnce) {
  constexpr int kClients = 300, kPieces = 50;
  Mailbox mail;
  HttpServer server({}, mail.handler());
  std::thread worker([&] {
    std::vector<std::shared_ptr<HttpReply>> replies;
    for (int i = 0; i < kClients; ++i) {
      replies.push_back(mail.next().reply);
      if (replies.back()) replies.back()->begin_stream(200, "text/event-stream");
    }
    for (int piece = 0; piece < kPieces; ++piece) {
      for (const auto& reply : replies) {
        if (reply) reply->write("token " + std::to_string(piece) + "\n");
      }
    }
    for (const auto& reply : replies) {
      if (reply) reply->end();
    }
  });
  std::vector<Client> clients;
  clients.reserve(kClients);
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().send(get("/")));
  }
  std::string want;
  for (int piece = 0; piece < kPieces; ++piece) want += "token " + std::to_string(piece) + "\n";
  for (Client& client : clients) {
    const HttpAnswer answer = client.receive();
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.body, want);
  }
  worker.join();
  // Counted when an answer has left, which a client may see first.
  EXPECT_TRUE(eventually([&] { return server.stats().answers_by_class[2] == kClients; }));
  EXPECT_EQ(server.stats().gone, 0U);
}

TEST(HttpStream, ManyThreadsMayWriteToOneReply) {
  constexpr int kThreads = 4, kPieces = 500;
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  const auto reply = mail.next().reply;
  reply->begin_stream(200, "text/plain");
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPieces; ++i) {
        reply->write(std::string(static_cast<size_t>(t) + 1, static_cast<char>('a' + t)));
        if (i % 100 == 0) reply->on_gone([&] { ++told; });
        EXPECT_FALSE(reply->gone());
      }
    });
  }
  std::string body;
  EXPECT_EQ(client.receive_head().status, 200);
  while (body.size() < kPieces * (1 + 2 + 3 + 4)) {
    const auto chunk = client.receive_chunk();
    ASSERT_TRUE(chunk);
    body += *chunk;  // each chunk is one thread's
    EXPECT_EQ(*chunk, std::string(chunk->size(), (*chunk)[0]));
  }
  for (std::thread& thread : threads) thread.join();
  client.close();
  EXPECT_TRUE(eventually([&] { return told == kThreads * kPieces / 100; }));
}

TEST(HttpStream, GoneIsToldWhileNothingIsWritten) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  for (int i = 0; i < 20; ++i) {
    Client client(server.port());
    client.send(get("/"));
    const auto reply = mail.next().reply;
    if (i % 2 == 1) reply->begin_stream(200, "text/plain");
    std::atomic<int> first{0}, second{0}, late{0};
    std::atomic<bool> same_thread{false};
    const auto here = std::this_thread::get_id();
    reply->on_gone([&] {
      same_thread = std::this_thread::get_id() == here;
      ++first;
    });
    reply->on_gone([&] {
      ++second;
      throw std::runtime_error("is nobody's business");
    });
    client.close();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(eventually([&] { return first == 1 && second == 1; }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_FALSE(same_thread);
    // Also for those who ask after the fact.
    reply->on_gone([&] { ++late; });
    ASSERT_TRUE(eventually([&] { return late == 1; }));
    reply->end();
  }
}

TEST(HttpStream, CallbacksAreReleasedWithTheAnswer) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  const auto reply = mail.next().reply;
  const auto owned = std::make_shared<int>(0);
  reply->on_gone([owned] { ++*owned; });
  EXPECT_EQ(owned.use_count(), 2);
  reply->send(200, "text/plain", "x");
  EXPECT_EQ(owned.use_count(), 1);
  reply->on_gone([owned] { ++*owned; });
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(client.receive().body, "x");
  client.close();
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
  EXPECT_EQ(*owned, 0);
}

TEST(HttpStream, AReplyOwnedByItsOwnCallbackIsReleasedWhenTheClientLeaves) {
  Mailbox mail;
  HttpServer server({}, mail.handler());
  Client client(server.port());
  client.send(get("/"));
  std::weak_ptr<HttpReply> watched;
  {
    auto reply = mail.next().reply;
    watched = reply;
    reply->on_gone([reply] { reply->end(); });
  }
  EXPECT_FALSE(watched.expired());
  client.close();
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

TEST(HttpStream, RepliesOutliveTheServer) {
  std::vector<std::shared_ptr<HttpReply>> replies;
  std::vector<Client> clients;
  std::atomic<int> told{0};
  {
    Mailbox mail;
    HttpServer server({}, mail.handler());
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back(server.port());
      clients.back().send(get("/"));
      replies.push_back(mail.next().reply);
      ASSERT_TRUE(replies.back());
      replies.back()->on_gone([&] { ++told; });
    }
    replies[1]->begin_stream(200, "text/plain");
    replies[2]->begin_stream(200, "text/plain");
    replies[2]->write("some");
    replies[3]->send(200, "text/plain", "answered");
    EXPECT_EQ(clients[3].receive().body, "answered");
  }
  EXPECT_EQ(told, 3);
  replies[0]->send(200, "text/plain", "to nobody");
  replies[1]->write("to nobody");
  replies[1]->end();
  EXPECT_TRUE(replies[2]->gone());
  int late = 0;
  replies[2]->on_gone([&] { ++late; });
  EXPECT_EQ(late, 1);
  for (Client& client : clients) EXPECT_TRUE(client.closed());
  replies.clear();
  EXPECT_EQ(told, 3);
}

// Servers that end while clients come and go and threads answer them.
TEST(HttpStream, TheServerMayEndAtAnyMoment) {
  for (int round = 0; round < 10; ++round) {
    Mailbox mail;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    {
      HttpServer server({}, mail.handler());
      const int port = server.port();
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, port, t] {
          while (!stop) {
            Client client(port);
            if (!client.connected() || !client.send(get("/"))) return;
            if (t == 0) continue;  // leaves at once
            client.receive();
          }
        });
      }
      threads.emplace_back([&] {
        while (!stop) {
          if (mail.empty()) {
            ::poll(nullptr, 0, 1);
            continue;
          }
          const auto reply = mail.next().reply;
          reply->on_gone([reply] { reply->end(); });
          reply->begin_stream(200, "text/plain");
          for (int i = 0; i < 5; ++i) reply->write("piece");
          reply->end();
        }
      });
      ::poll(nullptr, 0, 5 + round * 3);
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(HttpStream, StatsMayBeReadAtAnyTime) {
  HttpServer server({}, echo);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    uint64_t last = 0;
    while (!stop) {
      const HttpStats stats = server.stats();
      EXPECT_GE(stats.requests, last);
      last = stats.requests;
    }
  });
  Client client(server.port());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(client.ask(get("/")).status, 200);
  stop = true;
  reader.join();
  EXPECT_EQ(server.stats().requests, 200U);
}

}  // namespace
}  // namespace adder
