// Clients made of raw sockets, so that they can be as wrong as a test needs, and handlers that a
// test watches.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http_server.h"

namespace adder::testing {

using std::chrono::milliseconds;

// How long something that must happen may take; far more than it does, also under sanitizers.
inline constexpr milliseconds kPatience{20'000};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // not cut

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class Client {
 public:
  // `receive_buffer` > 0: bytes that the kernel may keep unread.
  explicit Client(int port, SSL_CTX* tls = nullptr, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (tls == nullptr || !connected_) return;
    // SSL_write() has no MSG_NOSIGNAL. The server's thread, which is older, keeps the signal.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    ssl_ = SSL_new(tls);
    SSL_set_fd(ssl_, fd_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client(Client&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        ssl_(std::exchange(other.ssl_, nullptr)),
        connected_(other.connected_),
        in_(std::move(other.in_)) {}

  bool connected() const { return connected_; }

  // False when the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ssl_ != nullptr
                            ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                            : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Reads more; false at the end, an error, or after `patience`.
  bool receive_more(milliseconds patience = kPatience) {
    char buffer[16384];
    if (ssl_ == nullptr || SSL_pending(ssl_) == 0) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return false;
    }
    const ssize_t n = ssl_ != nullptr ? SSL_read(ssl_, buffer, sizeof(buffer))
                                      : ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  // The next answer. Status 0: none came.
  HttpAnswer receive(bool to_head = false) {
    HttpAnswer answer;
    size_t head = 0;
    while ((head = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive_more()) return answer;
    }
    read_head(in_.substr(0, head + 2), answer);
    in_.erase(0, head + 4);
    const bool no_body = to_head || answer.status < 200 || answer.status == 204;
    if (no_body) {
      answer.complete = true;
    } else if (answer.header("transfer-encoding") == "chunked") {
      answer.complete = read_chunks(answer.body);
    } else if (answer.headers.count("content-length") != 0) {
      const size_t length = std::stoul(answer.header("content-length"));
      answer.complete = take(length, answer.body);
    } else {
      while (receive_more()) {
      }
      answer.complete = ended_;
      answer.body = std::exchange(in_, {});
    }
    return answer;
  }

  HttpAnswer ask(std::string_view bytes) {
    send(bytes);
    return receive();
  }

  // One piece of a chunked stream whose head was read with receive_head(); nothing at its end.
  std::optional<std::string> receive_chunk() {
    std::string size, chunk, end;
    if (!take_line(size)) return std::nullopt;
    const size_t n = std::stoul(size, nullptr, 16);
    if (!take(n, chunk) || !take_line(end) || n == 0) return std::nullopt;
    return chunk;
  }
  HttpAnswer receive_head() { return receive(true); }

  // The server has closed, or does before `patience` is over; what it sends until then is ignored.
  bool closed(milliseconds patience = kPatience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!ended_) {
      const auto rest =
          std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
      if (rest.count() <= 0 || (!receive_more(rest) && !ended_)) return false;
    }
    return true;
  }
  const std::string& unread() const { return in_; }

  void half_close() { ::shutdown(fd_, SHUT_WR); }
  // The way a killed process on a broken line ends: with a reset instead of a good-bye.
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }
  void close() {
    if (ssl_ != nullptr) SSL_free(std::exchange(ssl_, nullptr));
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  static void read_head(const std::string& head, HttpAnswer& answer) {
    answer.status = std::atoi(head.c_str() + std::min(head.size(), head.find(' ')));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }
  bool take(size_t bytes, std::string& out) {
    while (in_.size() < bytes) {
      if (!receive_more()) return false;
    }
    out += in_.substr(0, bytes);
    in_.erase(0, bytes);
    return true;
  }
  bool take_line(std::string& out) {
    size_t end = 0;
    while ((end = in_.find("\r\n")) == std::string::npos) {
      if (!receive_more()) return false;
    }
    out = in_.substr(0, end);
    in_.erase(0, end + 2);
    return true;
  }
  bool read_chunks(std::string& body) {
    for (;;) {
      std::string size, end;
      if (!take_line(size)) return false;
      const size_t n = std::stoul(size, nullptr, 16);
      if (!take(n, body) || !take_line(end)) return false;
      if (n == 0) return true;
    }
  }

  int fd_ = -1;
  SSL* ssl_ = nullptr;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

// A request with a body, if there is one, and "Host".
inline std::string request_text(std::string_view method, std::string_view target,
                                std::string_view body = {}, std::string_view headers = {}) {
  std::string text(method);
  text += ' ';
  text += target;
  text += " HTTP/1.1\r\nHost: test\r\n";
  text += headers;
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n";
  text += body;
  return text;
}
inline std::string get(std::string_view target, std::string_view headers = {}) {
  return request_text("GET", target, {}, headers);
}

// Waits for something that another thread brings about.
template <typename Condition>
bool eventually(Condition condition, milliseconds patience = kPatience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

// A handler that leaves the requests to the test.
class Mailbox {
 public:
  struct Letter {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;  // null: none came
  };

  HttpHandler handler() {
    return [this](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
      const std::lock_guard lock(mutex_);
      letters_.push_back({std::move(request), std::move(reply)});
      arrived_.notify_all();
    };
  }
  Letter next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, kPatience, [&] { return !letters_.empty(); })) return {};
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return letters_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Letter> letters_;
};

// Records of finished requests, from the server's thread.
class Records {
 public:
  std::function<void(const HttpRecord&)> callback() {
    return [this](const HttpRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
  }
  std::vector<HttpRecord> wait_for(size_t count) {
    eventually([&] { return all().size() >= count; });
    return all();
  }
  std::vector<HttpRecord> all() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

 private:
  std::mutex mutex_;
  std::vector<HttpRecord> records_;
};

// Answers at once with what arrived.
inline void echo(HttpRequest&& request, const std::shared_ptr<HttpReply>& reply) {
  std::string text = request.method + " " + request.path;
  for (const auto& [name, value] : request.query) text += "\n" + name + "=" + value;
  reply->send(200, "text/plain", text + "\n" + request.body);
}

}  // namespace adder::testing
