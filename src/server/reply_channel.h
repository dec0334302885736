// Between a reply, which any thread uses, and its connection on the server's thread. Internal to
// the server: replies write HTTP into the channel, the connection takes it out.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_request.h"

namespace adder {

// What the request asks of the form of its answer.
struct ReplyForm {
  bool no_body = false;     // HEAD
  bool http_1_0 = false;    // knows no chunks
  bool keep_alive = false;  // the connection stays open after the answer
  HttpHeaders headers;      // of any answer to this request
  size_t stream_limit = 0;  // bytes
};

class ReplyChannel {
 public:
  using Callbacks = std::vector<std::function<void()>>;

  // `wake` makes the server's thread look at notice() and take() soon. It is called with a lock
  // held, and never after disconnect().
  ReplyChannel(ReplyForm form, std::function<void()> wake);

  // For any thread.
  void send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers);
  void begin_stream(int status, std::string_view content_type, const HttpHeaders& headers);
  void write(std::string_view chunk);
  void end();
  void abandon();  // nobody will go on with this answer
  bool gone() const;
  void on_gone(std::function<void()> callback);

  // For the server's thread.
  enum class State {
    kWaiting,
    kStreaming,
    kFinished,    // with the bytes taken
    kUnanswered,  // abandoned before an answer; take() says so once and waits again
    kCut,         // abandoned within a stream
    kOverflow,    // the client reads too slowly
  };
  struct Output {
    std::string bytes;
    State state;
    bool keep_alive;
  };
  // What wake() was about. Callbacks are those of on_gone(), once gone() is true.
  struct Notice {
    bool overflow;
    Callbacks callbacks;
  };
  Notice notice();
  Output take();
  void sent(size_t bytes);  // of those taken, handed to the operating system
  void close_after();       // announce the end of the connection, if there still is a head to come
  int status() const;       // 0: no answer has begun
  // The client has closed its side. Returns what is to be called.
  Callbacks mark_gone();
  // The channel leads nowhere from here on. `lost`: like mark_gone(), the answer did not get
  // through.
  Callbacks disconnect(bool lost);

 private:
  void append_head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::string_view framing);
  Callbacks finish(State state);  // returns the callbacks that nobody needs any more
  void wake();

  mutable std::mutex mutex_;
  ReplyForm form_;
  std::function<void()> wake_;  // empty: disconnected
  bool woken_ = false;          // since the last notice()
  State state_ = State::kWaiting;
  int status_ = 0;
  bool body_ = true;  // the answer has one
  bool gone_ = false;
  std::string pending_;
  size_t in_flight_ = 0;
  Callbacks callbacks_;
};

}  // namespace adder
