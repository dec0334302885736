// One accepted connection as a stream of bytes: plain TCP or TLS. Internal to the server;
// everything here is called on the server's thread, which also calls back.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace boost::asio {
class io_context;
namespace ssl {
class context;
}
}  // namespace boost::asio

namespace adder {

enum class StreamEvent {
  kDone,
  kEnd,     // the client sends no more; it may still read
  kBroken,  // reset, aborted by close(), or bytes that are not TLS
};

class ByteStream {
 public:
  using Done = std::function<void(StreamEvent, size_t bytes)>;

  virtual ~ByteStream() = default;
  // Each `done` is called once, later, never within the call. It must own the owner of the stream
  // and of the buffers. At most one read and one write at a time.
  virtual void handshake(Done done) = 0;
  virtual void read(std::span<char> into, Done done) = 0;
  virtual void write(std::string_view bytes, Done done) = 0;  // some of them
  // Says that nothing more will be sent, then reads and forgets until the client closes too:
  // closing with bytes unread would reset the connection, and could take away the answer on its
  // way.
  virtual void linger(Done done) = 0;
  // Ends all of the above with kBroken.
  virtual void close() = 0;
  // The client has closed its side, though bytes from before may be unread.
  virtual bool peer_closed() = 0;
};

// Takes over a connected, non-blocking socket. `tls` null: plain.
std::unique_ptr<ByteStream> make_byte_stream(boost::asio::io_context& io, int fd,
                                             boost::asio::ssl::context* tls);

}  // namespace adder
