#include "server/byte_stream.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

namespace adder {
namespace {

namespace asio = boost::asio;
using Code = boost::system::error_code;
using Socket = asio::ip::tcp::socket;

StreamEvent event_of(const Code& code) {
  if (!code) return StreamEvent::kDone;
  // Many TLS clients leave without a close_notify; the lengths in HTTP show what is incomplete.
  if (code == asio::error::eof || code == asio::ssl::error::stream_truncated) {
    return StreamEvent::kEnd;
  }
  return StreamEvent::kBroken;
}

// An asio handler that calls `done`.
auto handler_of(ByteStream::Done done) {
  return [done = std::move(done)](const Code& code, size_t bytes) { done(event_of(code), bytes); };
}

// Small writes leave at once, and a client whose machine vanished is noticed within two minutes
// even if there is nothing to send.
void set_options(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof(value));  // a refusal is no reason to fail
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Socket adopted(asio::io_context& io, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  set_options(fd);
  const bool six = address.ss_family == AF_INET6;
  Socket socket(io);
  Code code;
  socket.assign(six ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd, code);
  if (code) {
    ::close(fd);
    throw boost::system::system_error(code);
  }
  return socket;
}

using Scrap = std::array<char, 4096>;

void discard(Socket& socket, Scrap& scrap, ByteStream::Done done) {
  socket.async_read_some(asio::buffer(scrap), [&socket, &scrap, done = std::move(done)](
                                                  const Code& code, size_t) mutable {
    if (code) return done(event_of(code), 0);
    discard(socket, scrap, std::move(done));
  });
}

void shut_and_discard(Socket& socket, Scrap& scrap, ByteStream::Done done) {
  Code ignored;
  socket.shutdown(Socket::shutdown_send, ignored);
  discard(socket, scrap, std::move(done));
}

void close_socket(Socket& socket) {
  Code ignored;
  socket.close(ignored);
}

bool is_half_closed(Socket& socket) {
  pollfd query{socket.native_handle(), POLLRDHUP, 0};
  return ::poll(&query, 1, 0) > 0 && (query.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// `this` is safe in every handler: `done`, which the handler holds, owns the stream.
class PlainStream : public ByteStream {
 public:
  PlainStream(asio::io_context& io, int fd) : socket_(adopted(io, fd)) {}

  void handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done(StreamEvent::kDone, 0); });
  }
  void read(std::span<char> into, Done done) override {
    socket_.async_read_some(asio::buffer(into.data(), into.size()), handler_of(std::move(done)));
  }
  void write(std::string_view bytes, Done done) override {
    socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), handler_of(std::move(done)));
  }
  void linger(Done done) override { shut_and_discard(socket_, scrap_, std::move(done)); }
  void close() override { close_socket(socket_); }
  bool peer_closed() override { return is_half_closed(socket_); }

 private:
  Socket socket_;
  Scrap scrap_;
};

class TlsStream : public ByteStream {
 public:
  TlsStream(asio::io_context& io, int fd, asio::ssl::context& context)
      : stream_(adopted(io, fd), context) {}

  void handshake(Done done) override {
    stream_.async_handshake(
        asio::ssl::stream_base::server,
        [done = std::move(done)](const Code& code) { done(event_of(code), 0); });
  }
  void read(std::span<char> into, Done done) override {
    stream_.async_read_some(asio::buffer(into.data(), into.size()), handler_of(std::move(done)));
  }
  void write(std::string_view bytes, Done done) override {
    stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()), handler_of(std::move(done)));
  }
  void linger(Done done) override {
    // Data of the client instead of its close_notify is an error here; it is discarded below.
    stream_.async_shutdown([this, done = std::move(done)](const Code&) mutable {
      shut_and_discard(stream_.next_layer(), scrap_, std::move(done));
    });
  }
  void close() override { close_socket(stream_.next_layer()); }
  bool peer_closed() override { return is_half_closed(stream_.next_layer()); }

 private:
  asio::ssl::stream<Socket> stream_;
  Scrap scrap_;
};

}  // namespace

std::unique_ptr<ByteStream> make_byte_stream(asio::io_context& io, int fd,
                                             asio::ssl::context* tls) {
  if (tls == nullptr) return std::make_unique<PlainStream>(io, fd);
  return std::make_unique<TlsStream>(io, fd, *tls);
}

}  // namespace adder
