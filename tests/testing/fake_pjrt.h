// The fake plugin, as a test sees it.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/error.h"

namespace adder {

inline const std::string kFakePlugin = ADDER_FAKE_PJRT_PLUGIN;

// Sets a variable of the environment, or takes it away, until the scope ends.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    const char* old = ::getenv(name);
    if (old != nullptr) old_ = old, had_ = true;
    set(value);
  }
  ScopedEnvironment(const char* name, const std::string& value)
      : ScopedEnvironment(name, value.c_str()) {}
  ~ScopedEnvironment() { set(had_ ? old_.c_str() : nullptr); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void set(const char* value) { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }

  const char* name_;
  std::string old_;
  bool had_ = false;
};

// A new folder, removed at the end.
class ScopedFolder {
 public:
  ScopedFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "adder_xla.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail(ErrorCode::kIo, "cannot make {}", name);
    path_ = name;
  }
  ~ScopedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A counter of the fake plugin at `path`, which must have been loaded.
inline int fake_counter(const std::string& path, const char* name) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) fail(ErrorCode::kNotFound, "{} is not loaded", path);
  const auto counter = reinterpret_cast<int (*)()>(::dlsym(library, name));
  const int value = counter();
  ::dlclose(library);
  return value;
}

}  // namespace adder
