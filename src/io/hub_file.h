// One file of a download: NAME.part grows until it is verified, then becomes NAME.
//
// NAME.part.json records what the bytes in NAME.part belong to:
//   {"etag", "version", "sha256", "size"}
// They are continued only while that is still what the server offers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "io/hub_manifest.h"
#include "io/hub_remote.h"
#include "io/sha256.h"

namespace adder {

struct FileGoal {
  std::string name;             // relative to the directory, already checked to stay inside
  std::optional<int64_t> size;  // as listed
  std::string sha256;           // as listed, or empty
  std::string version;          // as listed, or empty
};

class FileDownload : public HubSink {
 public:
  // done, total (-1: unknown), true while bytes of an earlier run are read back
  using OnProgress = std::function<void(int64_t done, int64_t total, bool checking)>;

  // Takes up an earlier NAME.part when there is one worth it. `check_cancel` throws to stop.
  // Throws Error(kIo) when the directory cannot be written.
  FileDownload(const std::string& directory, FileGoal goal, std::function<void()> check_cancel,
               OnProgress on_progress);
  ~FileDownload() override;
  FileDownload(const FileDownload&) = delete;
  FileDownload& operator=(const FileDownload&) = delete;

  // True when NAME.part is all there and its hash is known: no request is needed.
  bool has_everything();

  // Compares size and hash, syncs, renames. Throws Error(kIo) naming the file, expected and found;
  // the bad NAME.part is gone then.
  PulledFile finish();

  int64_t range_from() const override { return done_; }
  Verdict on_response(const HttpResponse& response) override;
  void on_body(std::span<const std::byte> bytes) override;
  bool is_complete() override;
  int64_t bytes_received() const override { return received_; }

 private:
  struct Offer;

  bool continues_part(const HttpResponse& response, const Offer& offer) const;
  void take_up_part();
  void start_over();
  void write_record() const;
  void open_part();
  void remove_part();
  [[noreturn]] void wrong_size(int64_t found);
  [[noreturn]] void cannot_write(int error) const;

  std::string path_, part_, record_;
  const FileGoal goal_;
  std::function<void()> check_cancel_;
  OnProgress on_progress_;
  int fd_ = -1;
  int64_t done_ = 0;      // bytes in NAME.part, all of them in hash_
  int64_t received_ = 0;  // from the network
  int64_t total_ = -1;
  std::string sha256_;           // expected: as listed, else as the server's tag says
  std::string etag_;             // of the bytes in NAME.part
  bool length_is_sure_ = false;  // the body's own framing tells a complete body from a cut one
  Sha256 hash_;
};

// SHA-256 of a file on disk. Throws Error(kIo). on_bytes: told the count so far; may throw.
std::string sha256_of_file(const std::string& file, const std::function<void(int64_t)>& on_bytes);

}  // namespace adder
