// One connection: requests in, replies out, one after the other. Internal to the server; all of it
// runs on the server's thread.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "server/byte_stream.h"
#include "server/reply_channel.h"
#include "server/request_parser.h"
#include "server/server_core.h"

namespace adder {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `refused`: there are too many connections; the first request gets a 503.
  HttpConnection(ServerCore& core, std::unique_ptr<ByteStream> stream, std::string client,
                 bool refused);

  void start();
  // Called about every 100 ms: time-outs.
  void tick(HttpClock::time_point now);
  // Ends the connection after the running request; at once if there is none.
  void drain();
  // Ends it at once.
  void close();

 private:
  enum class Phase {
    kHandshake,
    kHead,    // waiting for, or reading, a request line and headers
    kBody,    // reading a body
    kReply,   // the handler works, or its answer is being sent
    kLinger,  // everything is sent; until the client has closed too
    kClosed,
  };

  // Runs `step`, and ends the connection if it throws: memory has run out.
  template <typename Step>
  ByteStream::Done guarded(Step step);

  void await_request();
  void read();
  void on_read(StreamEvent event, size_t bytes);
  void advance();
  bool read_head();
  void on_head();
  void dispatch();
  void refuse(const HttpRefusal& refusal);
  void send_error(const HttpRefusal& refusal);
  void answer_options();
  void hold(size_t body_bytes);
  void open_channel();
  void flush();
  void on_written(StreamEvent event, size_t bytes);
  void finish_reply();
  void report(bool complete);
  void on_client_end();
  void on_timeout();
  void set_deadline(std::chrono::milliseconds from_now) { deadline_ = HttpClock::now() + from_now; }
  void no_deadline() { deadline_ = HttpClock::time_point::max(); }

  ServerCore& core_;
  std::unique_ptr<ByteStream> stream_;
  const std::string client_;
  const bool refused_;

  Phase phase_ = Phase::kHandshake;
  HttpClock::time_point deadline_;        // of the phase
  HttpClock::time_point write_deadline_;  // while writing_
  bool reading_ = false, writing_ = false;
  bool client_ended_ = false;  // it sends no more

  std::array<char, 16384> buffer_;
  std::string in_;       // read, not yet parsed
  size_t searched_ = 0;  // of in_, for the end of the head
  std::string out_;      // taken from the channel
  size_t out_sent_ = 0;  // of out_

  // Of the current request.
  std::unique_ptr<RequestParser> parser_;
  HttpRequest request_;
  HttpRecord record_;
  size_t held_ = 0;          // of core_.body_bytes
  bool started_ = false;     // its first byte is here
  bool dispatched_ = false;  // the handler has it
  bool keep_alive_ = false;
  HttpClock::time_point started_at_, body_at_;
  std::shared_ptr<ReplyChannel> channel_;  // in kReply
  ReplyChannel::State reply_state_ = ReplyChannel::State::kWaiting;
};

}  // namespace adder
