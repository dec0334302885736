// Models by repository name: download from a Hugging Face-style endpoint into a cache directory.
//
// Endpoint layout: GET /api/models/{repo}[/revision/{rev}]?blobs=true lists the files,
// GET /{repo}/resolve/{revision}/{file} gives one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/http_client.h"
#include "io/hub_remote.h"

namespace adder {

inline constexpr const char* kDefaultEndpoint = "https://huggingface.co";

// "owner/name" of [A-Za-z0-9._-], each part at most 96 long, not beginning with '.' or '-',
// without "..".
bool is_repo_name(std::string_view text);

// $ADDER_CACHE/models, else $XDG_CACHE_HOME/adder/models, else ~/.cache/adder/models, followed by
// /owner/name. Throws Error(kBadInput) for a malformed name or when none of the three is set.
std::string pulled_directory(const std::string& repo);

// The directory of a complete copy in the cache: its manifest is there and so is every file, with
// its size.
std::optional<std::string> find_pulled(const std::string& repo);

// What a MODEL argument means: an existing path as it is; else the copy of a repository that was
// pulled (its directory, or the GGUF file when that is its only form of weights).
// Throws Error(kBadInput) with the `adder pull` command for a repository that was not pulled, and
// naming the path otherwise.
std::string resolve_model_path(const std::string& argument);

struct PullProgress {
  enum class Stage {
    kChecking,  // bytes on disk are read back
    kDownloading,
    kWaiting,   // before the next attempt; `note` says why
    kFinished,  // this file was downloaded and verified
  };
  Stage stage = Stage::kDownloading;
  std::string file;
  int64_t file_done = 0;
  int64_t file_total = -1;  // -1: unknown
  int64_t done = 0;         // of all files of this pull, present ones included
  int64_t total = -1;
  int64_t received = 0;  // from the network in this pull
  std::string note;
};

struct PullOptions {
  std::string endpoint = kDefaultEndpoint;
  std::string token;                 // sent to the endpoint alone
  std::string revision = "main";     // branch, tag or commit
  std::string directory;             // empty: pulled_directory(repo)
  std::vector<std::string> include;  // more files, by shell pattern; see select_files
  HttpOptions http;
  RetryOptions retry;
  std::function<void(const PullProgress&)> on_progress;  // from the calling thread, often
  const std::atomic<bool>* cancel = nullptr;             // raised: pull() throws soon
};

// Endpoint and token from HF_ENDPOINT and HF_TOKEN where they are set.
PullOptions pull_options_from_environment();

struct PullResult {
  std::string directory;
  std::string commit;      // empty when the server gives none
  int64_t files = 0;       // in the copy
  int64_t bytes = 0;       // in the copy
  int64_t downloaded = 0;  // files fetched by this call
  std::string offline;     // not empty: why the endpoint could not be asked about a complete copy
};

// Makes the directory a complete, verified copy. Files that are already there in the listed
// version are left alone; interrupted ones are continued.
// Throws Error(kBadInput, kIo): see the files of this folder for the reasons. What was verified
// before stays, and NAME.part of the file under way stays unless its bytes are wrong.
PullResult pull(const std::string& repo, const PullOptions& options);

}  // namespace adder
