// A Hugging Face-style endpoint with the store that large files are redirected to, on two ports of
// one machine. It answers honestly; `tamper` makes single answers wrong.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "io/sha256.h"
#include "testing/http_server.h"

namespace adder::testing {

struct FakeFile {
  std::string content;
  bool large = false;  // stored as LFS: redirected, SHA-256 known
};

struct FakeRepo {
  std::string commit = std::string(40, 'a');
  std::map<std::string, FakeFile> files;
};

class FakeHub {
 public:
  // nth: 0 for the first request of this path.
  using Tamper = std::function<void(const HttpTestRequest&, int nth, HttpTestResponse&)>;

  FakeHub()
      : store_([this](const HttpTestRequest& request) { return guarded(request, false); }),
        server_([this](const HttpTestRequest& request) { return guarded(request, true); }) {}

  // To be changed only while no request is under way.
  std::map<std::string, FakeRepo> repos;
  Tamper tamper;        // of the endpoint
  Tamper tamper_store;  // of the store
  bool list_blobs = true;
  bool list_commit = true;

  HttpTestServer& server() { return server_; }
  HttpTestServer& store() { return store_; }
  std::string url() const { return server_.url(); }

  static std::string sha256_of(const std::string& text) {
    return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
  }

  // Requests for files, the lists of files left out.
  std::vector<HttpTestRequest> file_requests() const {
    std::vector<HttpTestRequest> out = server_.requests();
    std::erase_if(out, [](const auto& request) { return request.target.starts_with("/api/"); });
    return out;
  }
  // Numbers begin at 0 again, too.
  void forget_requests() {
    const std::lock_guard lock(mutex_);
    seen_.clear();
    server_.forget_requests();
    store_.forget_requests();
  }

 private:
  HttpTestResponse guarded(const HttpTestRequest& request, bool endpoint) {
    const std::lock_guard lock(mutex_);
    HttpTestResponse response = endpoint ? answer(request) : answer_store(request);
    const int nth = seen_[request.path()]++;
    const Tamper& change = endpoint ? tamper : tamper_store;
    if (change) change(request, nth, response);
    return response;
  }

  static HttpTestResponse not_found() { return {404, {}, "Entry not found"}; }

  HttpTestResponse answer(const HttpTestRequest& request) const {
    const std::string path = request.path();
    for (const auto& [name, repo] : repos) {
      const std::string api = "/api/models/" + name;
      if (path == api || path.starts_with(api + "/revision/")) return listing(repo);
      const std::string resolve = "/" + name + "/resolve/";
      if (!path.starts_with(resolve)) continue;
      const size_t slash = path.find('/', resolve.size());
      const std::string revision = path.substr(resolve.size(), slash - resolve.size());
      const auto file = repo.files.find(path.substr(slash + 1));
      if (file == repo.files.end() || (revision != "main" && revision != repo.commit)) {
        return not_found();
      }
      const std::string hash = sha256_of(file->second.content);
      if (!file->second.large) {
        HttpTestResponse response = with_range(request, file->second.content);
        response.set("ETag", "\"" + hash.substr(0, 40) + "\"");  // looks like git's blob id
        return response;
      }
      HttpTestResponse response{302, {}, "Found. Redirecting"};
      response.set("X-Repo-Commit", repo.commit);
      response.set("X-Linked-Size", std::to_string(file->second.content.size()));
      response.set("X-Linked-ETag", "\"" + hash + "\"");
      response.set("Location", store_.url() + "/blob/" + hash + "?signature=1");
      return response;
    }
    return not_found();
  }

  HttpTestResponse listing(const FakeRepo& repo) const {
    nlohmann::json siblings = nlohmann::json::array();
    for (const auto& [name, file] : repo.files) {
      nlohmann::json entry = {{"rfilename", name}};
      const std::string hash = sha256_of(file.content);
      if (list_blobs) {
        entry["size"] = file.content.size();
        entry["blobId"] = hash.substr(0, 40);
        if (file.large) {
          entry["lfs"] = {{"sha256", hash}, {"size", file.content.size()}, {"pointerSize", 134}};
        }
      }
      siblings.push_back(entry);
    }
    nlohmann::json document = {{"id", "x"}, {"siblings", siblings}};
    if (list_commit) document["sha"] = repo.commit;
    return {200, {{"Content-Type", "application/json"}}, document.dump()};
  }

  HttpTestResponse answer_store(const HttpTestRequest& request) const {
    for (const auto& [name, repo] : repos) {
      for (const auto& [file, content] : repo.files) {
        if (request.path() != "/blob/" + sha256_of(content.content)) continue;
        HttpTestResponse response = with_range(request, content.content);
        // A real store's tag is not the file's SHA-256, though it may have 64 digits as well.
        response.set("ETag", "\"" + std::string(64, '0') + "\"");
        return response;
      }
    }
    return not_found();
  }

  static HttpTestResponse with_range(const HttpTestRequest& request, const std::string& content) {
    const std::string range = request.header("range");
    if (range.empty()) return {200, {}, content};
    const size_t first = std::stoull(range.substr(6));  // "bytes=N-"
    const std::string total = std::to_string(content.size());
    if (first >= content.size()) return {416, {{"Content-Range", "bytes */" + total}}, ""};
    return {206,
            {{"Content-Range", "bytes " + std::to_string(first) + "-" +
                                   std::to_string(content.size() - 1) + "/" + total}},
            content.substr(first)};
  }

  std::mutex mutex_;
  std::map<std::string, int> seen_;
  HttpTestServer store_;
  HttpTestServer server_;
};

}  // namespace adder::testing
