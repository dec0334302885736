// An HTTP server inside the test process whose answers can be made wrong on purpose: cut, slow,
// lying about their length. One thread per connection, one request per connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace adder::testing {

struct HttpTestRequest {
  std::string method, target;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  std::string path() const { return target.substr(0, target.find('?')); }
};

struct HttpTestResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // Faults.
  int64_t announced = -1;      // >= 0: this Content-Length instead of the true one
  bool chunked = false;        // chunked encoding instead of a Content-Length
  bool no_length = false;      // neither: the body ends with the connection
  int64_t cut_after = -1;      // >= 0: close after so many bytes of the body
  int64_t hang_after = -1;     // >= 0: send so many bytes, then nothing, connection open
  size_t drip_bytes = 0;       // > 0: send in pieces of this size ...
  int drip_pause_ms = 0;       // ... with this pause between them
  bool close_at_once = false;  // no answer at all

  void set(const std::string& name, const std::string& value) {
    std::erase_if(headers, [&](const auto& header) { return header.first == name; });
    headers.emplace_back(name, value);
  }
  void drop(const std::string& name) {
    std::erase_if(headers, [&](const auto& header) { return header.first == name; });
  }
};

class HttpTestServer {
 public:
  using Handler = std::function<HttpTestResponse(const HttpTestRequest&)>;

  explicit HttpTestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("test server: no listening socket");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~HttpTestServer() { stop(); }
  HttpTestServer(const HttpTestServer&) = delete;
  HttpTestServer& operator=(const HttpTestServer&) = delete;

  // Afterwards connecting is refused.
  void stop() {
    if (stopping_.exchange(true)) return;
    acceptor_.join();
    close(listener_);
    for (std::thread& thread : connections_) thread.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::vector<HttpTestRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void forget_requests() {
    const std::lock_guard lock(mutex_);
    requests_.clear();
  }

 private:
  void accept_loop() {
    while (!stopping_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      connections_.emplace_back([this, connection] {
        serve(connection);
        close(connection);
      });
    }
  }

  // False when the peer is gone or the server stops.
  bool send_all(int connection, std::string_view bytes) const {
    while (!bytes.empty()) {
      pollfd ready{connection, POLLOUT, 0};
      if (stopping_) return false;
      if (poll(&ready, 1, 20) <= 0) continue;
      const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  bool read_request(int connection, HttpTestRequest& request) const {
    std::string text;
    while (text.find("\r\n\r\n") == std::string::npos) {
      char buffer[4096];
      pollfd ready{connection, POLLIN, 0};
      if (stopping_) return false;
      if (poll(&ready, 1, 20) <= 0) continue;
      const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      text.append(buffer, static_cast<size_t>(got));
    }
    const size_t space = text.find(' '), second = text.find(' ', space + 1);
    request.method = text.substr(0, space);
    request.target = text.substr(space + 1, second - space - 1);
    for (size_t at = text.find("\r\n") + 2; at < text.size();) {
      const size_t end = text.find("\r\n", at);
      const std::string line = text.substr(at, end - at);
      at = end + 2;
      const size_t colon = line.find(": ");
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = line.substr(colon + 2);
    }
    return true;
  }

  void serve(int connection) {
    HttpTestRequest request;
    if (!read_request(connection, request)) return;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const HttpTestResponse response = handler_(request);
    if (response.close_at_once) return;
    std::string head =
        "HTTP/1.1 " + std::to_string(response.status) + " X\r\nConnection: close\r\n";
    for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
    std::string body = response.body;
    if (response.chunked) {
      head += "Transfer-Encoding: chunked\r\n";
      char size[32];
      std::snprintf(size, sizeof(size), "%zx\r\n", body.size());
      body = (body.empty() ? "" : size + body + "\r\n") + "0\r\n\r\n";
    } else if (!response.no_length) {
      const int64_t length =
          response.announced >= 0 ? response.announced : static_cast<int64_t>(body.size());
      head += "Content-Length: " + std::to_string(length) + "\r\n";
    }
    if (!send_all(connection, head + "\r\n")) return;
    std::string_view rest = body;
    if (response.cut_after >= 0) rest = rest.substr(0, static_cast<size_t>(response.cut_after));
    if (response.hang_after >= 0) rest = rest.substr(0, static_cast<size_t>(response.hang_after));
    const size_t piece = response.drip_bytes > 0 ? response.drip_bytes : rest.size();
    while (!rest.empty()) {
      if (!send_all(connection, rest.substr(0, piece))) return;
      rest.remove_prefix(std::min(piece, rest.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(response.drip_pause_ms));
    }
    if (response.hang_after < 0) return;
    while (!stopping_) {  // until the peer gives up
      pollfd gone{connection, POLLIN | POLLRDHUP, 0};
      if (poll(&gone, 1, 20) > 0) return;
    }
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::vector<std::thread> connections_;
  mutable std::mutex mutex_;
  std::vector<HttpTestRequest> requests_;
};

}  // namespace adder::testing
