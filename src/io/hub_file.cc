#include "io/hub_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "io/hub_listing.h"
#include "io/json_lenient.h"
#include "io/printable.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBlock = 1 << 20;
constexpr int64_t kMaxRecordBytes = 64 * 1024;

// Without quotes. Empty for a weak tag (W/"..."): two of them do not promise equal bytes.
std::string strong_etag(const std::string& text) {
  if (text.starts_with("W/")) return {};
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

// Digits only: "-1", "+1" and " 1" are no counts.
std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "bytes 100-199/200" -> first byte and total (nothing for '*').
struct ContentRange {
  int64_t first = -1;
  std::optional<int64_t> total;
};

ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == std::string_view::npos ||
      slash == std::string_view::npos || slash < dash) {
    return range;
  }
  range.first = parse_count(text.substr(6, dash - 6)).value_or(-1);
  range.total = parse_count(text.substr(slash + 1));
  return range;
}

}  // namespace

// What a chain of answers says about a file. A large file's first hop carries X-Linked-Size and
// X-Linked-Etag (its SHA-256) and redirects to a store whose own ETag means something else.
struct FileDownload::Offer {
  std::string tag;
  std::string sha256;
  std::optional<int64_t> linked_size;

  explicit Offer(const HttpResponse& response) {
    for (const HttpHop& hop : response.hops) {
      const auto value = [&](const char* name) {
        const auto found = hop.headers.find(name);
        return found == hop.headers.end() ? std::string() : found->second;
      };
      const std::string own = strong_etag(value("etag"));
      const std::string linked = hop.same_origin ? strong_etag(value("x-linked-etag")) : "";
      if (!linked.empty()) tag = linked;
      if (tag.empty()) tag = own;
      if (!hop.same_origin) continue;
      const std::string& hash = linked.empty() ? own : linked;
      if (sha256.empty() && is_hex(hash, 64)) sha256 = lower_case(hash);
      if (!linked_size) linked_size = parse_count(value("x-linked-size"));
    }
  }
};

std::string sha256_of_file(const std::string& file, const std::function<void(int64_t)>& on_bytes) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, "{}: cannot open: {}", file, std::strerror(errno));
  struct Close {
    int fd;
    ~Close() { close(fd); }
  } const closer{fd};
  Sha256 hash;
  std::vector<std::byte> block(kReadBlock);
  for (int64_t done = 0;;) {
    const ssize_t got = read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::kIo, "{}: cannot read: {}", file, std::strerror(errno));
    if (got == 0) return hash.finish();
    hash.update({block.data(), static_cast<size_t>(got)});
    done += got;
    on_bytes(done);
  }
}

FileDownload::FileDownload(const std::string& directory, FileGoal goal,
                           std::function<void()> check_cancel, OnProgress on_progress)
    : path_(directory + "/" + goal.name),
      part_(path_ + ".part"),
      record_(part_ + ".json"),
      goal_(std::move(goal)),
      check_cancel_(std::move(check_cancel)),
      on_progress_(std::move(on_progress)),
      total_(goal_.size.value_or(-1)),
      sha256_(goal_.sha256) {
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  if (error) fail(ErrorCode::kIo, "{}: cannot make its directory: {}", path_, error.message());
  take_up_part();
}

FileDownload::~FileDownload() {
  if (fd_ >= 0) close(fd_);
}

// Bytes are kept when nothing speaks against them: their record is readable and neither hash,
// version nor size contradicts the list. The tag is compared when the server has answered.
void FileDownload::take_up_part() {
  std::error_code error;
  if (!fs::is_regular_file(part_, error)) return;
  const auto size = static_cast<int64_t>(fs::file_size(part_, error));
  std::string etag, version, sha256;
  int64_t recorded_total = -1;
  try {
    const JsonValue record = JsonValue::parse(read_text_file(record_, kMaxRecordBytes), record_);
    etag = record.get_string("etag").value_or("");
    version = record.get_string("version").value_or("");
    sha256 = record.get_string("sha256").value_or("");
    recorded_total = record.get_int("size").value_or(-1);
  } catch (const Error&) {
    return remove_part();  // nobody knows what these bytes belong to
  }
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (error || size <= 0 || differ(sha256, goal_.sha256) || differ(version, goal_.version) ||
      (total_ >= 0 && size > total_)) {
    return remove_part();
  }
  if (sha256_.empty()) sha256_ = sha256;
  if (total_ < 0) total_ = recorded_total;
  etag_ = etag;

  // The hash covers the file from its first byte on, so these bytes are read once more.
  open_part();
  std::vector<std::byte> block(kReadBlock);
  while (done_ < size) {
    check_cancel_();
    const ssize_t got = pread(fd_, block.data(), block.size(), done_);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return start_over();
    hash_.update({block.data(), static_cast<size_t>(got)});
    done_ += got;
    on_progress_(done_, total_, true);
  }
}

// Without a hash a full-length part may still be of another version: then the server is asked.
bool FileDownload::has_everything() {
  return fd_ >= 0 && total_ >= 0 && done_ == total_ && !sha256_.empty();
}

void FileDownload::open_part() {
  if (fd_ < 0) fd_ = open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) cannot_write(errno);
}

void FileDownload::remove_part() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  unlink(part_.c_str());
  unlink(record_.c_str());
}

void FileDownload::start_over() {
  hash_.reset();
  done_ = 0;
  etag_.clear();
  total_ = goal_.size.value_or(-1);
  sha256_ = goal_.sha256;
  if (fd_ >= 0) close(fd_);
  fd_ = open(part_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) cannot_write(errno);
}

void FileDownload::write_record() const {
  const nlohmann::ordered_json record = {
      {"etag", etag_}, {"version", goal_.version}, {"sha256", sha256_}, {"size", total_}};
  write_text_file(record_,
                  record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// True when the bytes of a 206 answer belong behind those in NAME.part.
bool FileDownload::continues_part(const HttpResponse& response, const Offer& offer) const {
  const ContentRange range = parse_content_range(response.header("content-range"));
  if (range.first != done_ || (total_ >= 0 && range.total && *range.total != total_)) return false;
  if (offer.tag.empty() || etag_.empty()) return !sha256_.empty();  // the hash will tell
  return offer.tag == etag_;
}

HubSink::Verdict FileDownload::on_response(const HttpResponse& response) {
  if (response.status == 416) {  // the file is shorter than NAME.part by now, or of another length
    start_over();
    return Verdict::kRefused;
  }
  const std::string encoding = response.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    fail(ErrorCode::kIo, "{}: expected the plain file, got content-encoding {}", path_,
         printable(encoding));
  }
  const Offer offer(response);
  const std::string transfer = response.header("transfer-encoding");
  std::optional<int64_t> announced = parse_count(response.header("content-length"));
  length_is_sure_ = announced.has_value() || transfer.find("chunked") != std::string::npos;
  if (response.status == 206) {
    announced = parse_content_range(response.header("content-range")).total;
    length_is_sure_ = false;  // a server may hand out a piece of the range only
  }

  // Contradictions are told before NAME.part is touched: an earlier one survives them.
  for (const std::optional<int64_t>& size : {offer.linked_size, announced}) {
    if (size && goal_.size && *size != *goal_.size) {
      fail(ErrorCode::kIo, "{}: size: expected {} bytes (as listed), the server sends {}", path_,
           *goal_.size, *size);
    }
  }
  if (offer.linked_size && announced && *offer.linked_size != *announced) {
    fail(ErrorCode::kIo, "{}: size: expected {} bytes (X-Linked-Size), the server sends {}", path_,
         *offer.linked_size, *announced);
  }
  if (!goal_.sha256.empty() && !offer.sha256.empty() && goal_.sha256 != offer.sha256) {
    fail(ErrorCode::kIo, "{}: SHA-256: expected {} (as listed), the server's tag says {}", path_,
         goal_.sha256, offer.sha256);
  }

  // 200 to a range request: the server knows no ranges and sends all of it.
  const bool continues = response.status == 206 && continues_part(response, offer);
  if (!continues) start_over();
  if (response.status == 206 && !continues) return Verdict::kAgain;
  if (total_ < 0) total_ = offer.linked_size ? *offer.linked_size : announced.value_or(-1);
  if (sha256_.empty()) sha256_ = offer.sha256;
  etag_ = offer.tag;
  // Before the first byte: a part without its record is worthless after a crash.
  write_record();
  return Verdict::kTake;
}

void FileDownload::on_body(std::span<const std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  // Stops a server that sends without end.
  if (total_ >= 0 && count > total_ - done_) wrong_size(done_ + count);
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t got = pwrite(fd_, bytes.data() + written, bytes.size() - written,
                               done_ + static_cast<int64_t>(written));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot_write(errno);
    written += static_cast<size_t>(got);
  }
  hash_.update(bytes);
  done_ += count;
  received_ += count;
  on_progress_(done_, total_, false);
}

bool FileDownload::is_complete() {
  if (total_ < 0 || done_ == total_) return true;
  // A body that ended as its framing says is all the server has; one that ended with the
  // connection may have been cut.
  if (length_is_sure_) wrong_size(done_);
  return false;
}

void FileDownload::wrong_size(int64_t found) {
  remove_part();
  fail(ErrorCode::kIo, "{}: size: expected {} bytes, found {}{}", path_, total_,
       found > total_ ? "at least " : "", found);
}

void FileDownload::cannot_write(int error) const {
  if (error == ENOSPC || error == EDQUOT) {
    fail(ErrorCode::kIo, "{}: the disk is full after {} of {} bytes; the same command resumes",
         part_, done_, total_);
  }
  fail(ErrorCode::kIo, "{}: cannot write: {}", part_, std::strerror(error));
}

PulledFile FileDownload::finish() {
  PulledFile pulled{done_, hash_.finish(), goal_.version, etag_};
  if (!sha256_.empty() && pulled.sha256 != sha256_) {
    remove_part();
    fail(ErrorCode::kIo, "{}: SHA-256: expected {}, found {}", path_, sha256_, pulled.sha256);
  }
  // The name must not appear before the bytes are safe, also when the machine loses power.
  if (fsync(fd_) != 0) cannot_write(errno);
  close(fd_);
  fd_ = -1;
  if (rename(part_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kIo, "{}: cannot rename to {}: {}", part_, path_, std::strerror(errno));
  }
  unlink(record_.c_str());
  sync_directory(fs::path(path_).parent_path().string());
  return pulled;
}

}  // namespace adder
