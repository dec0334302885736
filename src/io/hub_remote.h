// Requests to one endpoint, tried again with growing pauses while that makes sense.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "core/error.h"
#include "io/http_client.h"

namespace adder {

struct RetryOptions {
  int attempts = 6;           // in a row without progress
  int first_pause_ms = 1000;  // then doubled
  int longest_pause_ms = 30000;
  int longest_asked_s = 120;  // a Retry-After beyond it ends the download with a message
};

// The network or the server failed for now; the caller may do without, or the user try later.
class HubUnavailable : public Error {
 public:
  explicit HubUnavailable(const std::string& message) : Error(ErrorCode::kIo, message) {}
};

// The server answered 404.
class HubNotFound : public Error {
 public:
  explicit HubNotFound(const std::string& message) : Error(ErrorCode::kIo, message) {}
};

// Where the bytes of one GET go. The same object sees every attempt.
class HubSink {
 public:
  enum class Verdict {
    kTake,     // hand the body over
    kAgain,    // leave it; ask again at once, range_from() has changed
    kRefused,  // leave it; the range does not exist (416): as kAgain, but only a few times
  };
  virtual ~HubSink() = default;
  virtual int64_t range_from() const = 0;
  virtual Verdict on_response(const HttpResponse& response) = 0;  // 200, 206, 416
  virtual void on_body(std::span<const std::byte> bytes) = 0;
  virtual bool is_complete() = 0;              // asked when the body has ended without an error
  virtual int64_t bytes_received() const = 0;  // of all attempts
};

class HubRemote {
 public:
  using OnPause = std::function<void(const std::string& reason, int milliseconds)>;

  // endpoint: "https://huggingface.co", without a trailing slash after construction.
  // Throws Error(kBadInput) for a malformed endpoint or a token with other than visible ASCII.
  HubRemote(std::string endpoint, std::string token, const HttpOptions& http,
            const RetryOptions& retry, const std::atomic<bool>* cancel, OnPause on_pause);

  const std::string& endpoint() const { return endpoint_; }

  // `path` begins with '/'; `what` names the thing in messages ("owner/name", "owner/name: file").
  // Throws HubUnavailable when the attempts are used up, HubNotFound, Error(kIo) when the server
  // refuses otherwise (401, 403 and other 4xx) and when cancelled.
  void get(const std::string& path, const std::string& what, HubSink& sink);
  std::string get_text(const std::string& path, const std::string& what, int64_t max_bytes);

  void check_cancel() const;

 private:
  void pause(const std::string& reason, int attempt, int64_t asked_s);
  [[noreturn]] void refuse(const HttpResponse& response, const std::string& what) const;

  std::string endpoint_, token_;
  RetryOptions retry_;
  const std::atomic<bool>* cancel_;
  OnPause on_pause_;
  HttpClient http_;
  bool answered_ = false;  // the endpoint has answered at least once
};

}  // namespace adder
