#include "engine/model_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "engine/atomic_file.h"

namespace adder {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& target) : target_(target) {
  while (target_.size() > 1 && target_.ends_with('/')) target_.pop_back();
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(target_, error));
  if (exists && !(fs::is_directory(target_, error) && fs::is_empty(target_, error))) {
    bad_input("{}: cannot write: expected a new or an empty folder", target_);
  }
  path_ = target_ + ".XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) {
    fail(ErrorCode::kIo, "{}: cannot create: {}", target_, std::strerror(errno));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void TemporaryFolder::commit() {
  // mkdtemp makes private folders; the result gets the permissions of any other new one.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::chmod(path_.c_str(), 0777 & ~mask) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0) {
    fail(ErrorCode::kIo, "{}: cannot write: {}", target_, std::strerror(errno));
  }
  path_.clear();
}

void copy_companions(const Checkpoint& source, const std::string& folder) {
  AtomicFile config(folder + "/config.json");
  const std::string text = source.config().dump() + "\n";
  config.write(std::as_bytes(std::span(text)));
  config.commit();
  if (source.directory().empty()) return;
  constexpr std::array<std::string_view, 5> kPrefixes = {"tokenizer", "special_tokens_map.json",
                                                         "generation_config.json", "chat_template",
                                                         "added_tokens.json"};
  for (const fs::directory_entry& entry : fs::directory_iterator(source.directory())) {
    const std::string name = entry.path().filename().string();
    const bool wanted = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                    [&](std::string_view p) { return name.starts_with(p); });
    if (wanted && entry.is_regular_file()) fs::copy_file(entry.path(), folder + "/" + name);
  }
}

}  // namespace adder
