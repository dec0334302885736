#include "io/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>

#include "core/error.h"

namespace adder {
namespace {

constexpr size_t kMaxHeaderBytes = 256 * 1024;  // of one response
constexpr size_t kMaxRedirectBody = 64 * 1024;  // read so that the connection can be reused
constexpr long kReceiveBuffer = 256 * 1024;     // fewer callbacks than curl's default 16 KiB
constexpr int kPollMilliseconds = 100;          // how late a cancel may be seen

struct EasyFree {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Easy = std::unique_ptr<CURL, EasyFree>;
using HeaderList = std::unique_ptr<curl_slist, ListFree>;
using Url = std::unique_ptr<CURLU, UrlFree>;

// curl_global_init is not thread-safe; a function's static is.
void init_curl_once() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) fail(ErrorCode::kInternal, "libcurl: {}", curl_easy_strerror(code));
}

std::string url_part(const Url& url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string out(text);
  curl_free(text);
  return out;
}

// `location` may be relative to `base`, which may be empty.
std::string join_url(const std::string& base, const std::string& location) {
  const Url url(curl_url());
  if (!base.empty() && curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) {
    return {};
  }
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) return {};
  return url_part(url, CURLUPART_URL, 0);
}

// 300 and 304 have no single place to go to.
bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Failures of a moment. A bad certificate or a malformed address stays what it is.
bool may_retry(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
      return true;
    default:
      return false;
  }
}

// One request of a chain and what came back; the target of libcurl's callbacks.
struct Transfer {
  const HttpClient::OnResponse* on_response = nullptr;
  const HttpClient::OnBody* on_body = nullptr;
  HttpResponse* response = nullptr;
  CURL* easy = nullptr;
  size_t header_bytes = 0;
  size_t redirect_bytes = 0;
  bool announced = false;
  bool stopped = false;     // by on_response
  bool redirected = false;  // enough of a redirect's body was seen
  bool headers_too_long = false;
  std::exception_ptr thrown;  // by a callback: libcurl is C, nothing may fly through it

  HttpResponseHeaders& headers() { return response->hops.back().headers; }

  bool is_redirect_answer() {
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    return is_redirect(status) && headers().count("location") != 0;
  }

  // Tells the caller the status and headers, once: at the first byte of the body or at its end.
  void announce() {
    if (announced) return;
    announced = true;
    long status = 0;
    curl_off_t wait = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait);
    response->status = static_cast<int>(status);
    response->retry_after_s = wait;
    stopped = !(*on_response)(*response);
  }
};

// One header line per call, line break included. Returning less than `bytes` ends the transfer.
size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  transfer.header_bytes += bytes;
  if (transfer.header_bytes > kMaxHeaderBytes) {
    transfer.headers_too_long = true;
    return 0;
  }
  std::string_view line(data, bytes);
  // A status line opens a new set: "100 Continue" or a proxy's answer may have come before.
  if (line.starts_with("HTTP/")) transfer.headers().clear();
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bytes;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view value = line.substr(colon + 1);
  constexpr std::string_view kBlank = " \t\r\n";
  value.remove_prefix(std::min(value.find_first_not_of(kBlank), value.size()));
  value = value.substr(0, value.find_last_not_of(kBlank) + 1);
  transfer.headers()[name] = std::string(value);
  return bytes;
}

// Returning less than `bytes` ends the transfer with CURLE_WRITE_ERROR.
size_t on_data(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  try {
    if (transfer.is_redirect_answer()) {
      transfer.redirect_bytes += bytes;
      transfer.redirected = transfer.redirect_bytes > kMaxRedirectBody;
      return transfer.redirected ? 0 : bytes;
    }
    transfer.announce();
    if (transfer.stopped) return 0;
    (*transfer.on_body)({reinterpret_cast<const std::byte*>(data), bytes});
    return bytes;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
}

}  // namespace

struct HttpClient::Impl {
  HttpOptions options;
  CURLM* multi = nullptr;  // keeps connections open between requests

  Impl(const HttpOptions& http_options) : options(http_options) {
    init_curl_once();
    multi = curl_multi_init();
    if (multi == nullptr) fail(ErrorCode::kInternal, "libcurl: no multi handle");
  }
  ~Impl() { curl_multi_cleanup(multi); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // curl_easy_perform would see the flag only once a second; a poll loop bounds that by 0.1 s.
  // Nothing: cancelled.
  std::optional<CURLcode> drive(CURL* easy, const std::atomic<bool>* cancel) {
    struct Added {
      CURLM* multi;
      CURL* easy;
      ~Added() { curl_multi_remove_handle(multi, easy); }
    };
    curl_multi_add_handle(multi, easy);
    const Added added{multi, easy};
    for (;;) {
      int running = 0, queued = 0;
      const CURLMcode code = curl_multi_perform(multi, &running);
      if (code != CURLM_OK) fail(ErrorCode::kInternal, "libcurl: {}", curl_multi_strerror(code));
      while (const CURLMsg* message = curl_multi_info_read(multi, &queued)) {
        if (message->msg == CURLMSG_DONE && message->easy_handle == easy) {
          return message->data.result;
        }
      }
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return std::nullopt;
      curl_multi_poll(multi, nullptr, 0, kPollMilliseconds, nullptr);
    }
  }
};

HttpClient::HttpClient(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HttpClient::~HttpClient() = default;

std::string HttpResponse::header(std::string_view name) const {
  if (hops.empty()) return {};
  const auto found = hops.back().headers.find(name);
  return found == hops.back().headers.end() ? std::string() : found->second;
}

HttpResult HttpClient::get(const HttpGet& request, const OnResponse& on_response,
                           const OnBody& on_body, const std::atomic<bool>* cancel) {
  const std::string home = url_origin(request.url);
  HttpResult result;
  result.response.url = request.url;
  bool at_home = true;  // until a redirect leaves the origin
  for (int redirects = 0;; ++redirects) {
    const std::string origin = url_origin(result.response.url);
    const bool same_origin = origin == home;
    at_home = at_home && same_origin;
    result.response.hops.push_back({same_origin, {}});

    const Easy easy(curl_easy_init());
    if (!easy) fail(ErrorCode::kInternal, "libcurl: no easy handle");
    Transfer transfer{&on_response, &on_body, &result.response, easy.get()};
    std::array<char, CURL_ERROR_SIZE> detail{};
    // Compressed bodies have no length and no ranges.
    HeaderList headers(curl_slist_append(nullptr, "Accept-Encoding: identity"));
    if (at_home && !request.token.empty()) {
      const std::string line = "Authorization: Bearer " + request.token;
      curl_slist_append(headers.get(), line.c_str());
    }
    if (request.range_from > 0) {
      const std::string line = fmt::format("Range: bytes={}-", request.range_from);
      curl_slist_append(headers.get(), line.c_str());
    }
    curl_easy_setopt(easy.get(), CURLOPT_URL, result.response.url.c_str());
    curl_easy_setopt(easy.get(), CURLOPT_PROTOCOLS_STR, "http,https");
    // Followed below: libcurl would hide the first hop's headers, and the token's way is ours.
    curl_easy_setopt(easy.get(), CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(easy.get(), CURLOPT_USERAGENT, "adder/0.1");
    // Signals belong to the program.
    curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, detail.data());
    curl_easy_setopt(easy.get(), CURLOPT_BUFFERSIZE, kReceiveBuffer);
    curl_easy_setopt(easy.get(), CURLOPT_CONNECTTIMEOUT, long{impl_->options.connect_timeout_s});
    curl_easy_setopt(easy.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy.get(), CURLOPT_LOW_SPEED_TIME, long{impl_->options.stall_timeout_s});
    curl_easy_setopt(easy.get(), CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy.get(), CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &transfer);

    const std::optional<CURLcode> code = impl_->drive(easy.get(), cancel);
    if (!code) {
      result.end = HttpResult::End::kCancelled;
      return result;
    }
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (transfer.headers_too_long) {
      fail(ErrorCode::kIo, "{}: expected at most {} bytes of headers, got more", origin,
           kMaxHeaderBytes);
    }
    if (transfer.stopped) {
      result.end = HttpResult::End::kStopped;
      return result;
    }
    if (*code != CURLE_OK && !transfer.redirected) {
      result.end = HttpResult::End::kBroken;
      result.error =
          fmt::format("{}: {}", origin, detail[0] != 0 ? detail.data() : curl_easy_strerror(*code));
      result.may_retry = may_retry(*code);
      result.unreachable = *code == CURLE_COULDNT_RESOLVE_HOST || *code == CURLE_COULDNT_CONNECT;
      return result;
    }
    if (!transfer.is_redirect_answer()) {
      transfer.announce();  // an empty body has not announced itself
      result.end = transfer.stopped ? HttpResult::End::kStopped : HttpResult::End::kComplete;
      return result;
    }
    if (redirects >= impl_->options.max_redirects) {
      fail(ErrorCode::kIo, "{}: expected at most {} redirects, got more", home,
           impl_->options.max_redirects);
    }
    const std::string next = join_url(result.response.url, transfer.headers()["location"]);
    if (next.empty() || !(next.starts_with("https://") || next.starts_with("http://"))) {
      fail(ErrorCode::kIo, "{}: redirects to something that is not an http(s) address", origin);
    }
    if (origin.starts_with("https://") && !next.starts_with("https://")) {
      fail(ErrorCode::kIo, "{}: refused a redirect from https to http", origin);
    }
    result.response.url = next;
  }
}

std::string url_origin(const std::string& text) {
  const Url url(curl_url());
  if (!url) fail(ErrorCode::kInternal, "libcurl: no url handle");
  const std::string scheme_form = "http(s)://host[:port][/path]";
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    bad_input("address '{}': expected {}", text, scheme_form);
  }
  // libcurl fills in "http" for an address without a scheme and accepts many more schemes.
  const std::string scheme = url_part(url, CURLUPART_SCHEME, 0);
  if (scheme != "http" && scheme != "https") {
    bad_input("address '{}': expected {}", text, scheme_form);
  }
  // The text is left out of this message: it holds a secret.
  if (!url_part(url, CURLUPART_USER, 0).empty() || !url_part(url, CURLUPART_PASSWORD, 0).empty()) {
    bad_input("address: expected {} without user name and password", scheme_form);
  }
  std::string host = url_part(url, CURLUPART_HOST, 0);
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("{}://{}:{}", scheme, host, url_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string url_escape(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       keep.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace adder
