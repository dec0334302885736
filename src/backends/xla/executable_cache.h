// Compiled programs on the disk, so that the next process compiles nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace adder::xla {

// One file per program, named by a hash of its key. It holds the key itself too, and is taken only
// where that is the same and the checksum fits; anything else is as if it were not there. The
// folder is private to the user: what lies in it is run. No function throws for what the disk does.
class ExecutableCache {
 public:
  // limit: bytes of all entries; 0 switches the cache off, and so does an empty folder.
  ExecutableCache(std::filesystem::path folder, uint64_t limit);
  // $XDG_CACHE_HOME/adder/xla or ~/.cache/adder/xla, of so many megabytes; without a number those
  // of ADDER_JIT_CACHE_MB, else 1024. Throws Error(kBadInput) where the variable is not a number.
  static ExecutableCache of_environment(std::optional<uint64_t> megabytes = {});

  bool enabled() const { return limit_ > 0 && !folder_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }

  std::optional<std::string> find(std::string_view key) const;
  // Replaces what is there, then removes the entries that have not been used for longest until the
  // rest keeps to the limit. Whether it was written.
  bool store(std::string_view key, std::string_view executable) const;
  void remove(std::string_view key) const;

 private:
  std::filesystem::path entry(std::string_view key) const;
  void sweep() const;

  std::filesystem::path folder_;
  uint64_t limit_;
};

}  // namespace adder::xla
