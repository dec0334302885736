// The records a download keeps beside its files: .adder-pull.json marks a complete copy, the
// journal .adder-pull.journal.json the verified files of one under way. Same format:
//   {"format": 1, "repo", "revision", "commit",
//    "files": [{"name", "size", "sha256", "version", "etag"}]}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace adder {

inline constexpr const char* kManifestName = ".adder-pull.json";
inline constexpr const char* kJournalName = ".adder-pull.journal.json";
inline constexpr const char* kLockName = ".adder-pull.lock";

struct PulledFile {
  int64_t size = 0;
  std::string sha256;   // of the bytes on disk
  std::string version;  // ListedFile::version when it was fetched
  std::string etag;     // the server's, for messages and comparison
};

struct Manifest {
  std::string repo, revision, commit;
  std::map<std::string, PulledFile> files;
};

// Nothing when the file is absent, malformed or of another format: the copy then counts as unknown.
std::optional<Manifest> read_manifest(const std::string& file);

// Replaces `file` in one step (temporary file, fsync, rename). Throws Error(kIo).
void write_manifest(const std::string& file, const Manifest& manifest);

// True when every file is there with its size.
bool files_present(const std::string& directory, const Manifest& manifest);

// Whole-file helpers of the download. Throw Error(kIo) naming the file.
std::string read_text_file(const std::string& file, int64_t max_bytes);
void write_text_file(const std::string& file, const std::string& text);  // as write_manifest
void sync_directory(const std::string& directory);

}  // namespace adder
