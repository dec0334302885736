#include "server/http_connection.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace adder {
namespace {

// Bytes of further requests that are read while one is answered. Reading on is how the end of the
// client is noticed at once; beyond this, tick() looks for it.
constexpr size_t kReadAhead = size_t{64} << 10;
constexpr std::chrono::milliseconds kLingerTime{2000};

// What a caller's function throws is no reason to end the server, and there is nobody to tell.
template <typename Function, typename... Args>
void call_safely(const Function& function, const Args&... args) noexcept {
  try {
    if (function) function(args...);
  } catch (...) {
    return;
  }
}

void call_all(const ReplyChannel::Callbacks& callbacks) {
  for (const auto& callback : callbacks) call_safely(callback);
}

}  // namespace

HttpConnection::HttpConnection(ServerCore& core, std::unique_ptr<ByteStream> stream,
                               std::string client, bool refused)
    : core_(core), stream_(std::move(stream)), client_(std::move(client)), refused_(refused) {
  set_deadline(core_.options.header_timeout);
}

template <typename Step>
ByteStream::Done HttpConnection::guarded(Step step) {
  return [self = shared_from_this(), step](StreamEvent event, size_t bytes) {
    try {
      step(*self, event, bytes);
    } catch (...) {
      self->close();
    }
  };
}

void HttpConnection::start() {
  stream_->handshake(guarded([](HttpConnection& self, StreamEvent event, size_t) {
    if (self.phase_ == Phase::kClosed) return;
    if (event != StreamEvent::kDone) return self.close();
    self.await_request();
    // The first request follows the connection at once, or was it made for nothing?
    self.set_deadline(self.core_.options.header_timeout);
    self.read();
  }));
}

void HttpConnection::await_request() {
  phase_ = Phase::kHead;
  parser_ = std::make_unique<RequestParser>(core_.options);
  request_ = {};
  request_.client = client_;
  record_ = {};
  record_.client = client_;
  hold(0);
  searched_ = 0;
  started_ = dispatched_ = keep_alive_ = false;
  reply_state_ = ReplyChannel::State::kWaiting;
  set_deadline(core_.options.idle_timeout);
}

void HttpConnection::read() {
  const bool wanted = phase_ == Phase::kHead || phase_ == Phase::kBody ||
                      (phase_ == Phase::kReply && in_.size() < kReadAhead);
  if (reading_ || client_ended_ || !wanted) return;
  reading_ = true;
  stream_->read(buffer_, guarded([](HttpConnection& self, StreamEvent event, size_t bytes) {
                  self.on_read(event, bytes);
                }));
}

void HttpConnection::on_read(StreamEvent event, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  // This read was there before linger()'s and may get the end in its place.
  if (phase_ == Phase::kLinger) {
    if (event != StreamEvent::kDone) close();
    return;
  }
  if (event == StreamEvent::kBroken) return close();
  if (event == StreamEvent::kEnd) return on_client_end();
  core_.counters.bytes_in += bytes;
  in_.append(buffer_.data(), bytes);
  advance();
  read();
}

// The client may have closed altogether, or only its own side after its last request. An answer is
// still sent if there comes one, but whoever works on it is told.
void HttpConnection::on_client_end() {
  if (phase_ != Phase::kReply) return close();
  client_ended_ = true;
  call_all(channel_->mark_gone());
}

void HttpConnection::advance() {
  try {
    if (phase_ == Phase::kHead && read_head()) on_head();
    if (phase_ == Phase::kBody) {
      parser_->parse_body(in_);
      hold(parser_->body_bytes());
      const size_t seconds = parser_->body_bytes() / core_.options.body_rate;
      deadline_ = body_at_ + core_.options.body_timeout + std::chrono::seconds(seconds);
      if (parser_->done()) dispatch();
    }
  } catch (const HttpRefusal& refusal) {
    refuse(refusal);
  }
}

// True when the head is there and parsed.
bool HttpConnection::read_head() {
  if (!started_) {
    // Some clients send an empty line after a body; servers should overlook it.
    in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));
    if (in_.empty()) return false;
    started_ = true;
    started_at_ = HttpClock::now();
    set_deadline(core_.options.header_timeout);
  }
  const size_t end = find_head_end(in_, searched_, core_.options);
  if (end == 0) return false;
  ++core_.counters.requests;
  const std::string head = in_.substr(0, end);
  in_.erase(0, end);
  parser_->parse_head(head, request_);
  return true;
}

void HttpConnection::on_head() {
  keep_alive_ = parser_->keep_alive() && !core_.draining;
  if (refused_) {
    throw HttpRefusal(503, "too many connections, try again later", {{"Retry-After", "1"}});
  }
  if (parser_->method() == "OPTIONS") return answer_options();
  const HttpServerOptions& options = core_.options;
  if (options.only_this_machine) check_this_machine(request_, core_.cors);
  if (!core_.keys.empty() && !(options.is_public && options.is_public(request_))) {
    const std::string* authorization = request_.header("Authorization");
    if (authorization == nullptr || !core_.keys.accepts(*authorization)) {
      throw HttpRefusal(401, "Authorization: expected \"Bearer\" and a valid API key",
                        {{"WWW-Authenticate", "Bearer"}});
    }
  }
  phase_ = Phase::kBody;
  body_at_ = HttpClock::now();
  set_deadline(options.body_timeout);
  if (parser_->done()) return dispatch();
  if (parser_->expects_continue() && in_.empty()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
}

void HttpConnection::answer_options() {
  keep_alive_ = keep_alive_ && parser_->done();  // a body would have to be read first
  HttpHeaders headers = core_.cors.preflight_headers(request_, core_.options.methods);
  headers.emplace_back("Allow", joined(core_.options.methods));
  open_channel();
  channel_->send(204, "", "", headers);
}

// Bodies are bounded one by one, and many clients must not add up to all of the memory either.
void HttpConnection::hold(size_t body_bytes) {
  core_.body_bytes += body_bytes - held_;
  held_ = body_bytes;
  if (core_.body_bytes > core_.options.bodies_limit && body_bytes > 0) {
    hold(0);
    throw HttpRefusal(503, "too many bytes of requests at once, try again later",
                      {{"Retry-After", "1"}});
  }
}

void HttpConnection::dispatch() {
  request_.body = parser_->take_body();
  open_channel();
  dispatched_ = true;
  ++core_.counters.running;
  const auto reply = std::make_shared<HttpReply>(channel_);
  try {
    core_.handler(std::move(request_), reply);
  } catch (const std::exception& error) {
    record_.error = error.what();
    channel_->abandon();
  } catch (...) {
    record_.error = "unknown exception";
    channel_->abandon();
  }
}

// Answers with an error made here. What the client still sends of the request would be taken for
// the next one, so the connection ends with it unless all of it was read.
void HttpConnection::refuse(const HttpRefusal& refusal) {
  const bool whole = phase_ == Phase::kHead && keep_alive_ && parser_->done();
  if (!whole) keep_alive_ = false;
  open_channel();
  send_error(refusal);
}

void HttpConnection::send_error(const HttpRefusal& refusal) {
  const auto& render = core_.options.render_error;
  const std::string body = render ? render(refusal.status(), refusal.what())
                                  : http_error_body(refusal.status(), refusal.what());
  channel_->send(refusal.status(), "application/json", body, refusal.headers());
}

void HttpConnection::open_channel() {
  phase_ = Phase::kReply;
  no_deadline();
  record_.method = parser_->method();
  record_.path = request_.path;
  HttpHeaders headers = core_.cors.headers(request_);
  headers.insert(headers.end(), core_.options.extra_headers.begin(),
                 core_.options.extra_headers.end());
  ReplyForm form{parser_->method() == "HEAD", parser_->http_1_0(), keep_alive_, std::move(headers),
                 core_.options.stream_limit};
  channel_ =
      std::make_shared<ReplyChannel>(std::move(form), [&core = core_, weak = weak_from_this()] {
        core.post([weak] {
          const auto self = weak.lock();
          if (self) self->guarded([](HttpConnection& c, StreamEvent, size_t) { c.flush(); })({}, 0);
        });
      });
}

// Sends what there is to send, unless that is going on already.
void HttpConnection::flush() {
  if (phase_ == Phase::kLinger || phase_ == Phase::kClosed) return;
  if (channel_) {
    const ReplyChannel::Notice notice = channel_->notice();
    call_all(notice.callbacks);
    if (notice.overflow) return close();
  }
  if (writing_) return;
  if (out_.empty() && channel_) {
    ReplyChannel::Output output = channel_->take();
    if (output.state == ReplyChannel::State::kUnanswered) {
      if (client_ended_) return close();  // whoever worked on it stopped, as asked
      send_error(HttpRefusal(500, "the server had an error while it worked on this request"));
      output = channel_->take();
    }
    out_ = std::move(output.bytes);
    reply_state_ = output.state;
    keep_alive_ = keep_alive_ && output.keep_alive;
  }
  if (!out_.empty()) {
    writing_ = true;
    write_deadline_ = HttpClock::now() + core_.options.write_timeout;
    stream_->write(std::string_view(out_).substr(out_sent_),
                   guarded([](HttpConnection& self, StreamEvent event, size_t bytes) {
                     self.on_written(event, bytes);
                   }));
  } else if (reply_state_ == ReplyChannel::State::kFinished) {
    finish_reply();
  } else if (reply_state_ == ReplyChannel::State::kCut) {
    close();
  }
}

void HttpConnection::on_written(StreamEvent event, size_t bytes) {
  writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (event != StreamEvent::kDone) return close();
  core_.counters.bytes_out += bytes;
  record_.bytes += bytes;
  if (channel_) channel_->sent(bytes);
  out_sent_ += bytes;
  if (out_sent_ == out_.size()) {
    out_ = {};
    out_sent_ = 0;
  }
  flush();
}

void HttpConnection::finish_reply() {
  report(true);
  channel_->disconnect(false);
  channel_.reset();
  if (client_ended_) return close();
  if (!keep_alive_) {
    phase_ = Phase::kLinger;
    hold(0);
    set_deadline(kLingerTime);
    stream_->linger(guarded([](HttpConnection& self, StreamEvent, size_t) { self.close(); }));
    return;
  }
  await_request();
  advance();
  read();
}

void HttpConnection::report(bool complete) {
  if (dispatched_) --core_.counters.running;
  if (client_ended_ || (!complete && reply_state_ != ReplyChannel::State::kCut)) {
    ++core_.counters.gone;
  }
  record_.status = channel_->status();
  if (record_.status == 0) record_.status = 499;
  ++core_.counters.answers_by_class[static_cast<size_t>(record_.status / 100)];
  record_.seconds = std::chrono::duration<double>(HttpClock::now() - started_at_).count();
  record_.complete = complete;
  call_safely(core_.options.on_request_done, record_);
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  hold(0);
  stream_->close();
  if (channel_) {
    report(false);
    call_all(channel_->disconnect(true));
    channel_.reset();
  }
  core_.on_closed(*this);
}

void HttpConnection::drain() {
  if (phase_ == Phase::kHandshake || (phase_ == Phase::kHead && !started_)) return close();
  keep_alive_ = false;
  if (channel_) channel_->close_after();
}

void HttpConnection::tick(HttpClock::time_point now) {
  if (phase_ == Phase::kClosed) return;
  if (writing_ && now >= write_deadline_) {
    ++core_.counters.timeouts;
    return close();
  }
  if (now >= deadline_) return on_timeout();
  // Reading has paused, so only this shows that the client has left.
  if (phase_ == Phase::kReply && !reading_ && !client_ended_ && stream_->peer_closed()) {
    on_client_end();
  }
}

void HttpConnection::on_timeout() {
  const bool reading_request = phase_ == Phase::kBody || (phase_ == Phase::kHead && started_);
  if (reading_request || phase_ == Phase::kHandshake) ++core_.counters.timeouts;
  if (!reading_request) return close();
  refuse(HttpRefusal(
      408, phase_ == Phase::kBody ? "body: expected it faster" : "headers: expected them faster"));
}

}  // namespace adder
