#include "backends/xla/executable_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "testing/fake_pjrt.h"

namespace adder::xla {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPlentyOfRoom = 1 << 20;

std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

std::string entry_contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite_entry(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(ExecutableCache, GivesBackWhatWasStored) {
  const ScopedFolder folder;
  const ExecutableCache cache(folder.path() / "a" / "b", kPlentyOfRoom);
  const std::string key("key\0with a zero", 15), executable(100000, '\xff');
  EXPECT_FALSE(cache.find(key));
  cache.store(key, executable);
  EXPECT_EQ(cache.find(key), executable);
  EXPECT_FALSE(cache.find(key + " "));
  cache.store(key, "shorter");
  EXPECT_EQ(cache.find(key), "shorter");
  EXPECT_EQ(entries_in(cache.folder()).size(), 1u) << "no temporary files";
  EXPECT_EQ(fs::status(cache.folder()).permissions(), fs::perms::owner_all);
  cache.remove(key);
  EXPECT_FALSE(cache.find(key));
}

TEST(ExecutableCache, StoresTheEmptyExecutable) {
  const ScopedFolder folder;
  const ExecutableCache cache(folder.path(), kPlentyOfRoom);
  cache.store("key", "");
  EXPECT_EQ(cache.find("key"), "");
}

TEST(ExecutableCache, IgnoresDamagedAndForeignEntries) {
  const ScopedFolder folder;
  const ExecutableCache cache(folder.path(), kPlentyOfRoom);
  cache.store("key", "the executable");
  const fs::path path = entries_in(folder.path()).at(0);
  const std::string good = entry_contents(path);
  for (size_t i = 0; i < good.size(); ++i) {  // header, key and executable, each byte
    std::string bad = good;
    bad[i] ^= 0x10;
    overwrite_entry(path, bad);
    EXPECT_FALSE(cache.find("key")) << "byte " << i;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    overwrite_entry(path, good.substr(0, size));
    EXPECT_FALSE(cache.find("key")) << size << " bytes";
  }
  overwrite_entry(path, good + "x");
  EXPECT_FALSE(cache.find("key"));
  // The entry of another program under this one's name.
  cache.store("kez", "another one");
  for (const fs::path& file : entries_in(folder.path())) {
    if (file != path) fs::copy_file(file, path, fs::copy_options::overwrite_existing);
  }
  EXPECT_FALSE(cache.find("key"));
  cache.store("key", "the executable");
  EXPECT_EQ(cache.find("key"), "the executable");
}

TEST(ExecutableCache, RemovesWhatHasNotBeenUsedForLongest) {
  const ScopedFolder folder;
  const ExecutableCache cache(folder.path(), 3500);
  const std::string executable(1000, 'x');
  const auto age = [&](const fs::path& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  cache.store("a", executable);
  age(entries_in(folder.path()).at(0), 9);
  cache.store("b", executable);
  for (const fs::path& file : entries_in(folder.path())) age(file, 5);
  overwrite_entry(folder.path() / "notes.txt", std::string(9000, 'n'));  // not ours: not counted
  overwrite_entry(folder.path() / "old.tmp", "left by a process that was killed");
  age(folder.path() / "old.tmp", 5);
  overwrite_entry(folder.path() / "new.tmp", "being written");
  EXPECT_TRUE(cache.find("a"));  // used now
  cache.store("c", executable);
  cache.store("d", executable);
  EXPECT_TRUE(cache.find("a"));
  EXPECT_FALSE(cache.find("b"));
  EXPECT_TRUE(cache.find("c"));
  EXPECT_TRUE(cache.find("d"));
  EXPECT_TRUE(fs::exists(folder.path() / "notes.txt"));
  EXPECT_FALSE(fs::exists(folder.path() / "old.tmp"));
  EXPECT_TRUE(fs::exists(folder.path() / "new.tmp"));
  cache.store("large", std::string(3500, 'x'));
  EXPECT_FALSE(cache.find("large"));
  EXPECT_TRUE(cache.find("d"));
}

TEST(ExecutableCache, NeverMindsADiskThatRefuses) {
  const ScopedFolder folder;
  overwrite_entry(folder.path() / "file", "");
  const ExecutableCache cache(folder.path() / "file" / "below", kPlentyOfRoom);
  cache.store("key", "executable");
  EXPECT_FALSE(cache.find("key"));
}

TEST(ExecutableCache, FollowsTheEnvironment) {
  const ScopedFolder folder;
  const ScopedEnvironment home("HOME", folder.path().string());
  {
    const ScopedEnvironment xdg("XDG_CACHE_HOME", folder.path().string() + "/x");
    const ScopedEnvironment size("ADDER_JIT_CACHE_MB", "5");
    const auto cache = ExecutableCache::of_environment();
    EXPECT_EQ(cache.folder(), folder.path() / "x/adder/xla");
    EXPECT_TRUE(cache.enabled());
  }
  {
    const ScopedEnvironment xdg("XDG_CACHE_HOME", "relative");
    const ScopedEnvironment size("ADDER_JIT_CACHE_MB", nullptr);
    const auto cache = ExecutableCache::of_environment();
    EXPECT_EQ(cache.folder(), folder.path() / ".cache/adder/xla");
    EXPECT_TRUE(cache.enabled());
  }
  {
    const ScopedEnvironment size("ADDER_JIT_CACHE_MB", "0");
    const auto cache = ExecutableCache::of_environment();
    EXPECT_FALSE(cache.enabled());
    cache.store("key", "executable");
    EXPECT_FALSE(cache.find("key"));
    EXPECT_TRUE(entries_in(folder.path()).empty());
  }
  {
    const ScopedEnvironment size("ADDER_JIT_CACHE_MB", "0");
    EXPECT_TRUE(ExecutableCache::of_environment(1).enabled()) << "what is asked for counts";
    const ScopedEnvironment some("ADDER_JIT_CACHE_MB", "5");
    EXPECT_FALSE(ExecutableCache::of_environment(0).enabled());
  }
  for (const char* wrong : {"-1", "12x", "1e3", "99999999999999999999", " 5"}) {
    const ScopedEnvironment size("ADDER_JIT_CACHE_MB", wrong);
    EXPECT_THROW(ExecutableCache::of_environment(), Error) << wrong;
  }
}

}  // namespace
}  // namespace adder::xla
