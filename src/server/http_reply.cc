#include "server/http_reply.h"

#include <utility>

#include "server/reply_channel.h"

namespace adder {

HttpReply::HttpReply(std::shared_ptr<ReplyChannel> channel) : channel_(std::move(channel)) {}

HttpReply::~HttpReply() {
  channel_->abandon();
}

void HttpReply::send(int status, std::string_view content_type, std::string_view body,
                     const HttpHeaders& headers) {
  channel_->send(status, content_type, body, headers);
}

void HttpReply::begin_stream(int status, std::string_view content_type,
                             const HttpHeaders& headers) {
  channel_->begin_stream(status, content_type, headers);
}

void HttpReply::write(std::string_view chunk) {
  channel_->write(chunk);
}

void HttpReply::end() {
  channel_->end();
}

bool HttpReply::gone() const {
  return channel_->gone();
}

void HttpReply::on_gone(std::function<void()> callback) {
  channel_->on_gone(std::move(callback));
}

}  // namespace adder
