#include "io/hub.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "io/hub_file.h"
#include "io/hub_listing.h"
#include "io/hub_manifest.h"
#include "io/printable.h"
#include "io/shard_index.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

// Listings of real repositories stay below 1 MB.
constexpr int64_t kMaxListingBytes = 16 << 20;
constexpr int64_t kMaxConfigBytes = 4 << 20;

// Where state-spaces models have their tokenizer, which their own repositories leave out.
constexpr const char* kNeoxRepo = "EleutherAI/gpt-neox-20b";
constexpr const char* kNeoxFile = "tokenizer.json";

// One download at a time per directory; the lock goes with the process, however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory) {
    const std::string file = directory + "/" + kLockName;
    fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(ErrorCode::kIo, "{}: cannot write: {}", file, std::strerror(errno));
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    const int error = errno;
    close(fd_);
    if (error == EWOULDBLOCK) {
      fail(ErrorCode::kIo, "{}: another adder pull is at work in this directory", directory);
    }
    fail(ErrorCode::kIo, "{}: cannot lock: {}", file, std::strerror(error));
  }
  ~DirectoryLock() { close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_;
};

class Pull {
 public:
  Pull(const std::string& repo, const PullOptions& options, std::string directory)
      : repo_(repo),
        options_(options),
        directory_(std::move(directory)),
        manifest_path_(directory_ + "/" + kManifestName),
        journal_path_(directory_ + "/" + kJournalName),
        remote_(options.endpoint, options.token, options.http, options.retry, options.cancel,
                [this](const std::string& reason, int milliseconds) {
                  progress_.stage = PullProgress::Stage::kWaiting;
                  progress_.note = fmt::format("{}; next attempt in {:.1f} s", reason,
                                               static_cast<double>(milliseconds) / 1000);
                  report();
                }) {}

  PullResult run() {
    const std::optional<Manifest> manifest = read_manifest(manifest_path_);
    const std::optional<Manifest> journal = read_manifest(journal_path_);
    for (const auto& old : {manifest, journal}) {
      if (old && old->repo != repo_) {
        fail(ErrorCode::kBadInput, "{}: holds a copy of {}; choose another directory for {}",
             directory_, old->repo, repo_);
      }
    }
    try {
      listing_ = parse_listing(remote_.get_text(listing_path(), repo_, kMaxListingBytes),
                               repo_ + ": list of files");
    } catch (const HubUnavailable& unavailable) {
      if (!manifest || manifest->revision != options_.revision ||
          !files_present(directory_, *manifest)) {
        throw;
      }
      record_ = *manifest;
      return result(unavailable.what());
    }
    // The journal comes second: it is the younger of the two.
    record_ = {repo_, options_.revision, listing_.commit, {}};
    for (const auto& old : {manifest, journal}) {
      if (old) keep_current(*old);
    }
    Selection selection = select_files(listing_, options_.include, repo_);
    plan_ = selection.files;
    // By index: an index file adds its shards to the plan.
    for (size_t i = 0; i < plan_.size(); ++i) {
      ensure(plan_[i]);
      if (plan_[i] == selection.index) plan_shards(selection.index);
      if (plan_[i] == "config.json" && !selection.has_tokenizer) ensure_neox_tokenizer();
    }
    finish(manifest, journal);
    return result("");
  }

 private:
  std::string listing_path() const {
    // The endpoint's default revision has the short address.
    const std::string revision =
        options_.revision == "main" ? "" : "/revision/" + url_escape(options_.revision);
    return "/api/models/" + repo_ + revision + "?blobs=true";
  }

  // Takes over the files of an earlier run that are there and are what the listing offers.
  void keep_current(const Manifest& old) {
    const bool same_commit = old.commit == listing_.commit;
    for (const auto& [name, file] : old.files) {
      std::error_code error;
      const auto size = fs::file_size(directory_ + "/" + name, error);
      if (error || static_cast<int64_t>(size) != file.size) continue;
      const auto listed = listing_.files.find(name);
      const bool current = listed == listing_.files.end()
                               ? file.version == kNeoxRepo
                               : is_current(file, listed->second, same_commit);
      if (current) record_.files[name] = file;
    }
  }

  static bool is_current(const PulledFile& file, const ListedFile& listed, bool same_commit) {
    // The strongest statement that both sides make decides.
    if (listed.size && *listed.size != file.size) return false;
    if (!listed.sha256.empty()) return file.sha256 == listed.sha256;
    if (!listed.version.empty() && !file.version.empty()) return file.version == listed.version;
    return same_commit;
  }

  void ensure(const std::string& name) {
    const ListedFile& listed = listing_.files.at(name);
    if (record_.files.count(name) != 0 || adopt(name, listed)) return;
    check_space();
    const FileGoal goal{name, listed.size, listed.sha256, listed.version};
    // By commit, so that a push in the middle cannot mix two revisions.
    const std::string commit = use_commit_ ? listing_.commit : "";
    try {
      download(goal, repo_, commit.empty() ? options_.revision : commit);
    } catch (const HubNotFound&) {
      // Plain mirrors know branches only. Size and hash are those of the listing either way.
      if (commit.empty()) throw;
      use_commit_ = false;
      download(goal, repo_, options_.revision);
    }
  }

  // A file nobody recorded, e.g. copied here by hand: its hash tells.
  bool adopt(const std::string& name, const ListedFile& listed) {
    const std::string path = directory_ + "/" + name;
    std::error_code error;
    if (listed.sha256.empty() || !listed.size || !fs::is_regular_file(path, error) ||
        static_cast<int64_t>(fs::file_size(path, error)) != *listed.size) {
      return false;
    }
    const std::string sha256 = sha256_of_file(path, [&](int64_t done) {
      remote_.check_cancel();
      report_file(name, done, *listed.size, PullProgress::Stage::kChecking);
    });
    if (sha256 != listed.sha256) return false;
    record_.files[name] = {*listed.size, sha256, listed.version, ""};
    return true;
  }

  void ensure_neox_tokenizer() {
    if (record_.files.count(kNeoxFile) != 0) return;
    const bool ours =
        repo_.starts_with("state-spaces/") ||
        wants_neox_tokenizer(read_text_file(directory_ + "/config.json", kMaxConfigBytes));
    if (ours) download({kNeoxFile, std::nullopt, "", kNeoxRepo}, kNeoxRepo, "main");
  }

  void plan_shards(const std::string& index) {
    const std::string where = directory_ + "/" + index;
    for (const auto& [shard, tensors] : read_shard_index(where)) {
      if (is_reserved(shard) || !(shard.ends_with(".safetensors") || shard.ends_with(".bin"))) {
        bad_input("{}: expected the name of a .safetensors or .bin file, got {}", where,
                  printable(shard));
      }
      if (listing_.files.count(shard) == 0) {
        bad_input("{}: names the shard {}, which {} does not hold", where, printable(shard), repo_);
      }
      if (std::find(plan_.begin(), plan_.end(), shard) == plan_.end()) plan_.push_back(shard);
    }
  }

  // Told before the first byte rather than after an hour.
  void check_space() const {
    int64_t missing = 0;
    for (const std::string& name : plan_) {
      if (record_.files.count(name) != 0) continue;
      std::error_code error;
      const auto part = fs::file_size(directory_ + "/" + name + ".part", error);
      const int64_t have = error ? 0 : static_cast<int64_t>(part);
      missing += std::max<int64_t>(listing_.files.at(name).size.value_or(0) - have, 0);
    }
    std::error_code error;
    const fs::space_info space = fs::space(directory_, error);
    if (!error && static_cast<uint64_t>(missing) > space.available) {
      fail(ErrorCode::kIo, "{}: not enough disk space: expected {} bytes, {} are free", directory_,
           missing, space.available);
    }
  }

  void download(const FileGoal& goal, const std::string& repo, const std::string& revision) {
    // FileDownload counts its own bytes; the display wants those of the whole pull.
    const int64_t received_before = progress_.received;
    progress_.file = goal.name;
    FileDownload file(
        directory_, goal, [this] { remote_.check_cancel(); },
        [&](int64_t done, int64_t total, bool checking) {
          if (!checking) progress_.received = received_before + file.bytes_received();
          report_file(
              goal.name, done, total,
              checking ? PullProgress::Stage::kChecking : PullProgress::Stage::kDownloading);
        });
    if (!file.has_everything()) {
      remote_.get(
          "/" + repo + "/resolve/" + url_escape(revision) + "/" + url_escape(goal.name, "/"),
          repo + ": " + goal.name, file);
    }
    // In this order a crash leaves at worst a verified file that nobody has recorded.
    begin_changes();
    const PulledFile pulled = file.finish();
    record_.files[goal.name] = pulled;
    write_manifest(journal_path_, record_);
    ++downloaded_;
    report_file(goal.name, pulled.size, pulled.size, PullProgress::Stage::kFinished);
  }

  // From here to finish() the directory is a mixture: it must not pass for a complete copy.
  void begin_changes() {
    if (downloaded_ > 0) return;
    write_manifest(journal_path_, record_);
    std::error_code error;
    fs::remove(manifest_path_, error);
  }

  void finish(const std::optional<Manifest>& manifest, const std::optional<Manifest>& journal) {
    // Files of an older revision that nothing refers to any more would mislead a loader.
    for (const auto& old : {manifest, journal}) {
      if (!old) continue;
      for (const auto& [name, file] : old->files) {
        std::error_code error;
        if (record_.files.count(name) == 0) fs::remove(directory_ + "/" + name, error);
      }
    }
    write_manifest(manifest_path_, record_);
    std::error_code error;
    fs::remove(journal_path_, error);
    sync_directory(directory_);
  }

  PullResult result(const std::string& offline) const {
    PullResult out{directory_, record_.commit, static_cast<int64_t>(record_.files.size()),
                   0,          downloaded_,    offline};
    for (const auto& [name, file] : record_.files) out.bytes += file.size;
    return out;
  }

  void report_file(const std::string& name, int64_t done, int64_t total,
                   PullProgress::Stage stage) {
    progress_.stage = stage;
    progress_.file = name;
    progress_.file_done = done;
    progress_.file_total = total;
    // Planned files count as done when they are in the record; one unknown size hides the total.
    progress_.done = done;
    progress_.total = total;
    for (const std::string& planned : plan_) {
      if (planned == name) continue;
      const auto have = record_.files.find(planned);
      if (have != record_.files.end()) progress_.done += have->second.size;
      const std::optional<int64_t> size =
          have != record_.files.end() ? have->second.size : listing_.files.at(planned).size;
      progress_.total = size && progress_.total >= 0 ? progress_.total + *size : -1;
    }
    report();
  }

  void report() const {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const std::string& repo_;
  const PullOptions& options_;
  std::string directory_, manifest_path_, journal_path_;
  PullProgress progress_;
  HubRemote remote_;
  RepoListing listing_;
  Manifest record_;                // the verified files
  std::vector<std::string> plan_;  // names in the listing, in the order of download
  bool use_commit_ = true;
  int64_t downloaded_ = 0;
};

}  // namespace

PullResult pull(const std::string& repo, const PullOptions& options) {
  // A malformed name is told even when a directory is given: it becomes part of an address.
  const std::string cache = options.directory.empty() ? pulled_directory(repo) : "";
  if (!is_repo_name(repo)) pulled_directory(repo);  // throws
  if (options.revision.empty()) bad_input("revision: expected a branch, tag or commit, got ''");
  const std::string directory = cache.empty() ? options.directory : cache;
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot make the directory: {}", directory, error.message());
  const DirectoryLock lock(directory);
  return Pull(repo, options, directory).run();
}

}  // namespace adder
