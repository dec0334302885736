#include "backends/xla/executable_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/error.h"

namespace adder::xla {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kDefaultLimitMb = 1024;
constexpr std::string_view kSuffix = ".xla";
constexpr std::string_view kTemporary = ".tmp";
// A process that still writes a file this old is not there any more.
constexpr std::chrono::hours kStale{1};

struct Hash128 {
  uint64_t high, low;
  bool operator==(const Hash128&) const = default;
};

// FNV-1a with 128 bits (draft-eastlake-fnv): against accidents, not against somebody who can write
// into the folder.
Hash128 hash_bytes(std::string_view bytes) {
  using Wide = unsigned __int128;
  constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide hash = (Wide{0x6c62272e07bb0142} << 64) | 0x62b821756295c58d;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return {static_cast<uint64_t>(hash >> 64), static_cast<uint64_t>(hash)};
}

// A file is this header, the key, the executable. Read by the machine that wrote it, as it is.
struct EntryHeader {
  char magic[8];
  uint64_t key_bytes, executable_bytes;
  Hash128 executable_hash;
};
constexpr char kMagic[8] = {'A', 'D', 'D', 'E', 'R', 'X', 'L', '1'};

struct EntryFile {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

uint64_t megabytes_of_environment() {
  const char* text = std::getenv("ADDER_JIT_CACHE_MB");
  if (text == nullptr || *text == 0) return kDefaultLimitMb;
  uint64_t megabytes = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, megabytes);
  ADDER_CHECK(error == std::errc{} && rest == end && megabytes < (uint64_t{1} << 40),
              "ADDER_JIT_CACHE_MB: expected a number of megabytes, got '{}'", text);
  return megabytes;
}

}  // namespace

ExecutableCache::ExecutableCache(fs::path folder, uint64_t limit)
    : folder_(std::move(folder)), limit_(limit) {}

ExecutableCache ExecutableCache::of_environment(std::optional<uint64_t> megabytes) {
  const uint64_t limit = (megabytes ? *megabytes : megabytes_of_environment()) << 20;
  // The XDG specification has relative paths ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return {fs::path(cache) / "adder/xla", limit};
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return {fs::path(home) / ".cache/adder/xla", limit};
  return {{}, 0};
}

fs::path ExecutableCache::entry(std::string_view key) const {
  const Hash128 hash = hash_bytes(key);
  return folder_ / fmt::format("{:016x}{:016x}{}", hash.high, hash.low, kSuffix);
}

std::optional<std::string> ExecutableCache::find(std::string_view key) const {
  if (!enabled()) return std::nullopt;
  const fs::path path = entry(key);
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  EntryHeader header = {};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key_bytes != key.size() ||
      size < sizeof(header) + key.size() ||
      header.executable_bytes != size - sizeof(header) - key.size()) {
    return std::nullopt;
  }
  std::string stored_key(key.size(), 0), executable(header.executable_bytes, 0);
  file.read(stored_key.data(), static_cast<std::streamsize>(stored_key.size()));
  file.read(executable.data(), static_cast<std::streamsize>(executable.size()));
  if (!file || stored_key != key || hash_bytes(executable) != header.executable_hash) {
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // used now
  return executable;
}

bool ExecutableCache::store(std::string_view key, std::string_view executable) const {
  const uint64_t bytes = sizeof(EntryHeader) + key.size() + executable.size();
  if (!enabled() || bytes > limit_) return false;
  std::error_code error;
  if (fs::create_directories(folder_, error)) {
    fs::permissions(folder_, fs::perms::owner_all, error);
  }
  EntryHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key_bytes = key.size();
  header.executable_bytes = executable.size();
  header.executable_hash = hash_bytes(executable);

  static std::atomic<uint64_t> count = 0;
  const fs::path path = entry(key);
  const fs::path temporary =
      fmt::format("{}.{}.{}{}", path.string(), ::getpid(), count++, kTemporary);
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(executable.data(), static_cast<std::streamsize>(executable.size()));
    file.close();
    if (file) fs::rename(temporary, path, error);
    if (!file || error) {
      fs::remove(temporary, error);
      return false;
    }
  }
  sweep();
  return true;
}

void ExecutableCache::remove(std::string_view key) const {
  std::error_code ignored;
  if (enabled()) fs::remove(entry(key), ignored);
}

void ExecutableCache::sweep() const {
  std::vector<EntryFile> files;
  uint64_t total = 0;
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (auto it = fs::directory_iterator(folder_, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code gone;  // another process sweeps too
    const fs::path& path = it->path();
    const uint64_t bytes = fs::file_size(path, gone);
    const auto used = gone ? now : fs::last_write_time(path, gone);
    if (gone) continue;
    if (path.extension() == kTemporary && now - used > kStale) fs::remove(path, gone);
    if (path.extension() != kSuffix) continue;
    files.push_back({path, bytes, used});
    total += bytes;
  }
  std::sort(files.begin(), files.end(),
            [](const EntryFile& a, const EntryFile& b) { return a.used < b.used; });
  for (const EntryFile& file : files) {
    if (total <= limit_) break;
    std::error_code ignored;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
}

}  // namespace adder::xla
