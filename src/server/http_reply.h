// The answer to one request.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "server/http_request.h"

namespace adder {

class ReplyChannel;

// Any thread may use it, at any time after the handler was called, and also after the server is
// gone. Nothing here blocks or throws on account of the client: what cannot be sent is dropped.
// A reply is either one send(), or begin_stream(), any number of write(), and end(). Calls out of
// that order do nothing. A reply destroyed unanswered becomes a 500; a stream destroyed before
// end() is cut, so that the client can tell.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<ReplyChannel> channel);
  ~HttpReply();
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  // `status` is 200 to 599. Control characters in headers become spaces.
  void send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers = {});

  void begin_stream(int status, std::string_view content_type, const HttpHeaders& headers = {});
  // Queued and sent at once as a chunk. A client that leaves more than
  // HttpServerOptions::stream_limit bytes unread is dropped.
  void write(std::string_view chunk);
  void end();

  // The client has closed its side, was dropped, or the server has ended.
  bool gone() const;
  // `callback` is called once, as soon as gone() is true before the answer is finished: from the
  // server's thread, or in this call if the server has ended already. It must not block, and is
  // released when the answer is finished.
  void on_gone(std::function<void()> callback);

 private:
  std::shared_ptr<ReplyChannel> channel_;
};

}  // namespace adder
