#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "server/http_connection.h"
#include "server/server_core.h"
#include "server/tls.h"

namespace adder {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Code = boost::system::error_code;

constexpr std::chrono::milliseconds kTick{100};  // how exact time-outs are
constexpr int kAcceptsAtOnce = 64;               // before other connections have their turn

std::string with_port(std::string_view host, int port) {
  const bool six = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string text_of(const Tcp::endpoint& endpoint) {
  return with_port(endpoint.address().to_string(), endpoint.port());
}

// An address, or a name's first IPv4 address, or its first other one.
Tcp::endpoint resolved(asio::io_context& io, std::string host, int port) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Code code;
  const auto number = static_cast<unsigned short>(port);
  const auto address = asio::ip::make_address(host, code);
  if (!code) return {address, number};
  Tcp::resolver resolver(io);
  const auto results = resolver.resolve(host, "", Tcp::resolver::passive, code);
  if (code || results.empty()) {
    fail(ErrorCode::kIo, "host: cannot resolve '{}': {}", host, code.message());
  }
  for (const auto& result : results) {
    if (result.endpoint().address().is_v4()) return {result.endpoint().address(), number};
  }
  return {results.begin()->endpoint().address(), number};
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions options, HttpHandler handler)
      : core(std::move(options), std::move(handler)) {
    if (!core.options.tls_key.empty()) {
      tls = make_tls_context(core.options.tls_certificate, core.options.tls_key);
    }
    core.post = [this](std::function<void()> step) { asio::post(io, std::move(step)); };
    core.on_closed = [this](HttpConnection& connection) { forget(connection); };
    listen();
    accept_soon();
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    asio::post(io, [this] {
      stop_listening();
      end_all();
      timer.cancel();
      work.reset();  // run() returns when the last handler has been told
    });
    thread.join();
  }

  void listen() {
    const Tcp::endpoint endpoint = resolved(io, core.options.host, core.options.port);
    const auto check = [&](const Code& code) {
      if (!code) return;
      fail(ErrorCode::kIo, "cannot listen on {}: {}",
           with_port(core.options.host, core.options.port), code.message());
    };
    Code code;
    acceptor.open(endpoint.protocol(), code), check(code);
    // A new server may start while connections of the last one are winding down.
    acceptor.set_option(Tcp::acceptor::reuse_address(true), code), check(code);
    acceptor.bind(endpoint, code), check(code);
    acceptor.listen(Tcp::acceptor::max_listen_connections, code), check(code);
    acceptor.non_blocking(true, code), check(code);
    const Tcp::endpoint bound = acceptor.local_endpoint(code);
    check(code);
    port = bound.port();
  }

  void run() {
    for (;;) {
      try {
        io.run();
        return;
      } catch (...) {
        continue;  // memory ran out in a step; the connection that it belonged to will time out
      }
    }
  }

  // The rest is called on the server's thread.

  void accept_soon() {
    acceptor.async_wait(Tcp::acceptor::wait_read, [this](const Code& code) {
      if (code || !acceptor.is_open()) return;
      try {
        accept_paused = !accept_waiting();
      } catch (...) {
        accept_paused = true;
      }
      if (accept_paused) {
        tick_soon();
      } else {
        accept_soon();
      }
    });
  }

  // False when the process has no file descriptors or memory left: then it is tried again later.
  bool accept_waiting() {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Tcp::endpoint peer;
      auto size = static_cast<socklen_t>(peer.capacity());
      const int fd =
          ::accept4(acceptor.native_handle(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        peer.resize(size);
        adopt(fd, text_of(peer));
        continue;
      }
      if (errno == EAGAIN) return true;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return false;
      // Otherwise that one connection is broken already.
    }
    return true;
  }

  void adopt(int fd, std::string client) {
    ++core.counters.accepted;
    const bool refused = connections.size() >= core.options.max_connections;
    if (refused) ++core.counters.refused;
    if (connections.size() >= core.options.max_connections + core.options.refusable_connections) {
      ::close(fd);
      return;
    }
    const auto connection = std::make_shared<HttpConnection>(
        core, make_byte_stream(io, fd, tls.get()), std::move(client), refused);
    connections.emplace(connection.get(), connection);
    ++core.counters.open;
    tick_soon();
    connection->start();
  }

  void forget(HttpConnection& connection) {
    connections.erase(&connection);
    const std::lock_guard lock(mutex);
    --core.counters.open;
    closed.notify_all();
  }

  template <typename Step>
  void for_all(Step step) {
    std::vector<std::shared_ptr<HttpConnection>> all;  // a step may end connections
    all.reserve(connections.size());
    for (const auto& [key, connection] : connections) all.push_back(connection);
    for (const auto& connection : all) {
      try {
        step(*connection);
      } catch (...) {
        connection->close();
      }
    }
  }

  void tick_soon() {
    if (ticking) return;
    ticking = true;
    timer.expires_after(kTick);
    timer.async_wait([this](const Code& code) {
      ticking = false;
      if (code) return;
      if (!connections.empty() || accept_paused) tick_soon();
      const auto now = HttpClock::now();
      for_all([now](HttpConnection& connection) { connection.tick(now); });
      if (accept_paused && acceptor.is_open()) {
        accept_paused = false;
        accept_soon();
      }
    });
  }

  void stop_listening() {
    Code ignored;
    acceptor.close(ignored);
    accept_paused = false;
  }

  void end_all() {
    while (!connections.empty()) {
      const auto connection = connections.begin()->second;  // close() forgets it
      connection->close();
    }
  }

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  Tcp::acceptor acceptor{io};
  asio::steady_timer timer{io};
  std::shared_ptr<asio::ssl::context> tls;
  ServerCore core;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections;
  bool ticking = false, accept_paused = false;
  int port = 0;
  std::mutex mutex;
  std::condition_variable closed;
  bool drained = false;  // guarded by mutex: drain() has reached the server's thread
  std::thread thread;
};

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port;
}

void HttpServer::drain(std::chrono::milliseconds timeout) {
  Impl& impl = *impl_;
  asio::post(impl.io, [&impl] {
    impl.stop_listening();
    impl.core.draining = true;
    impl.for_all([](HttpConnection& connection) { connection.drain(); });
    const std::lock_guard lock(impl.mutex);
    impl.drained = true;
    impl.closed.notify_all();
  });
  std::unique_lock lock(impl.mutex);
  const auto all_closed = [&] { return impl.drained && impl.core.counters.open == 0; };
  if (impl.closed.wait_for(lock, timeout, all_closed)) return;
  asio::post(impl.io, [&impl] { impl.end_all(); });
  impl.closed.wait(lock, all_closed);
}

HttpStats HttpServer::stats() const {
  const HttpCounters& now = impl_->core.counters;
  HttpStats stats{now.accepted, now.refused,  now.open,     now.requests, now.running,
                  now.gone,     now.timeouts, now.bytes_in, now.bytes_out};
  for (size_t i = 0; i < stats.answers_by_class.size(); ++i) {
    stats.answers_by_class[i] = now.answers_by_class[i];
  }
  return stats;
}

}  // namespace adder
