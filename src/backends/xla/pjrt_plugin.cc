#include "backends/xla/pjrt_plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>

#include "backends/xla/pjrt_error.h"
#include "core/error.h"

namespace adder::xla {
namespace {

namespace fs = std::filesystem;

struct KnownPlugin {
  std::string_view name;
  std::string_view file;  // below a Python environment's folder of packages
};
// The preferred ones first: an accelerator before the CPU.
constexpr auto kKnownPlugins = std::to_array<KnownPlugin>({
    {"tpu", "libtpu/libtpu.so"},
    {"cuda", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"},
    {"cuda", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
    {"cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"},
    {"cpu", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"},
});

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_known_name(std::string_view name) {
  return std::any_of(kKnownPlugins.begin(), kKnownPlugins.end(),
                     [&](const KnownPlugin& p) { return p.name == name; });
}

// lib/python3*/{site,dist}-packages below a prefix, the newest Python first.
void add_package_folders(const std::string& prefix, std::vector<std::string>& folders) {
  if (prefix.empty()) return;
  std::vector<std::string> found;
  for (const char* lib : {"lib", "lib64"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(fs::path(prefix) / lib, ignored)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path folder = entry.path() / packages;
        if (fs::is_directory(folder, ignored)) found.push_back(folder.string());
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a > b;  // python3.11 before python3.9
  });
  folders.insert(folders.end(), found.begin(), found.end());
}

std::vector<std::string> package_folders() {
  std::vector<std::string> folders;
  add_package_folders(environment_text("VIRTUAL_ENV"), folders);
  add_package_folders(environment_text("CONDA_PREFIX"), folders);
  const std::string home = environment_text("HOME");
  if (!home.empty()) add_package_folders(home + "/.local", folders);
  add_package_folders("/usr/local", folders);
  add_package_folders("/usr", folders);
  return folders;
}

// libtpu asks the network for minutes what machine this is where there is no TPU: nobody is to wait
// for that who did not ask for one.
bool has_tpu_device() {
  std::error_code ignored;
  return fs::exists("/dev/accel0", ignored) || fs::exists("/dev/vfio/0", ignored);
}

// Every known plugin of a name, or of any; with a message that says what was looked for.
std::vector<std::string> find_installed(std::string_view name) {
  const std::vector<std::string> folders = package_folders();
  std::vector<std::string> found;
  std::string files;
  for (const KnownPlugin& plugin : kKnownPlugins) {
    if (name.empty() ? plugin.name == "tpu" && !has_tpu_device() : plugin.name != name) continue;
    files += fmt::format("{}{}", files.empty() ? "" : ", ", plugin.file);
    for (const std::string& folder : folders) {
      const fs::path path = fs::path(folder) / plugin.file;
      std::error_code ignored;
      if (fs::exists(path, ignored)) found.push_back(path.string());
    }
  }
  if (found.empty()) {
    fail(adder::ErrorCode::kUnsupported,
         "no PJRT plugin{}{} is installed: looked for {} in {}; give the file of a plugin, or set "
         "ADDER_PJRT_PLUGIN to it",
         name.empty() ? "" : " for ", name, files, fmt::join(folders, ", "));
  }
  return found;
}

std::vector<std::string> listed_plugins(std::string_view list) {
  std::vector<std::string> all;
  while (!list.empty()) {
    const size_t end = std::min(list.find(':'), list.size());
    const std::string_view name = list.substr(0, end);
    if (!name.empty()) {
      const auto some = plugin_candidates(name);
      all.insert(all.end(), some.begin(), some.end());
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return all;
}

// The loader of the system maps what the headers of a library name without asking whether the file
// is as long: one that was cut short ends the process.
void check_complete(const std::string& path, uint64_t size) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header = {};
  const auto damaged = [&](std::string_view why) {
    fail(adder::ErrorCode::kUnsupported, "{}: not a plugin, or a damaged one: {}", path, why);
  };
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    damaged("expected a shared library");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    damaged("expected a library of 64 bits");
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment = {};
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof(segment))) {
      damaged("the file ends in its headers");
    }
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      damaged(fmt::format("expected at least {} bytes, got {}", segment.p_offset + segment.p_filesz,
                          size));
    }
  }
}

void check_table(const std::string& path, const pjrt::Api& api) {
  const pjrt::ApiVersion& version = api.version;
  if (version.major != pjrt::kMajor || version.minor < pjrt::kLeastMinor) {
    fail(adder::ErrorCode::kUnsupported,
         "{}: the version of its PJRT API does not fit: expected at least {}.{} and below {}.0, "
         "got {}.{}",
         path, pjrt::kMajor, pjrt::kLeastMinor, pjrt::kMajor + 1, version.major, version.minor);
  }
  if (api.struct_size < sizeof(pjrt::Api)) {
    fail(adder::ErrorCode::kUnsupported, "{}: its table of calls: expected {} bytes, got {}", path,
         sizeof(pjrt::Api), api.struct_size);
  }
  // Plugins of small makers leave out calls; without these there is nothing to run. The others are
  // asked for where they are used.
  const bool complete =
      api.error_destroy != nullptr && api.error_message != nullptr &&
      api.error_get_code != nullptr && api.event_destroy != nullptr && api.event_await != nullptr &&
      api.client_create != nullptr && api.client_destroy != nullptr &&
      api.client_platform_name != nullptr && api.client_platform_version != nullptr &&
      api.client_addressable_devices != nullptr && api.client_compile != nullptr &&
      api.buffer_from_host_buffer != nullptr && api.device_description_kind != nullptr &&
      api.device_get_description != nullptr && api.executable_destroy != nullptr &&
      api.executable_num_outputs != nullptr && api.loaded_executable_destroy != nullptr &&
      api.loaded_executable_get_executable != nullptr && api.loaded_executable_execute != nullptr &&
      api.buffer_destroy != nullptr && api.buffer_to_host_buffer != nullptr;
  if (!complete) {
    fail(adder::ErrorCode::kUnsupported,
         "{}: its table of calls leaves out what running a program takes", path);
  }
}

Plugin open_plugin(const std::string& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) {
    fail(adder::ErrorCode::kUnsupported, "{}: cannot read the plugin: {}", path, error.message());
  }
  check_complete(path, size);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(adder::ErrorCode::kUnsupported, "cannot load the plugin: {}", one_line(::dlerror()));
  }
  using GetApi = const pjrt::Api* (*)();
  const auto get_api = reinterpret_cast<GetApi>(::dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    ::dlclose(library);  // something else, which nobody has called
    fail(adder::ErrorCode::kUnsupported, "{}: not a PJRT plugin: it has no symbol GetPjrtApi",
         path);
  }
  const pjrt::Api* api = get_api();
  if (api == nullptr) fail(adder::ErrorCode::kUnsupported, "{}: GetPjrtApi gives nothing", path);
  check_table(path, *api);
  if (api->plugin_initialize != nullptr) {
    auto args = pjrt::arguments<pjrt::PluginInitializeArgs>();
    check_pjrt(*api, api->plugin_initialize(&args), fmt::format("initialize {}", path),
               adder::ErrorCode::kUnsupported);
  }
  const std::string file = fs::path(path).filename().string();
  const auto time = fs::last_write_time(path, error).time_since_epoch().count();
  return {path, file,
          fmt::format("{} {} {} {}.{}", file, size, time, api->version.major, api->version.minor),
          api};
}

}  // namespace

std::vector<std::string> plugin_candidates(std::string_view name) {
  if (name.empty()) {
    const std::string list = environment_text("ADDER_PJRT_PLUGIN");
    const std::vector<std::string> listed = listed_plugins(list);
    return listed.empty() ? find_installed("") : listed;
  }
  if (is_known_name(name)) return find_installed(name);
  if (name.find('/') == name.npos && !fs::exists(name)) {
    fail(adder::ErrorCode::kUnsupported,
         "unknown PJRT plugin '{}': expected cpu, cuda, tpu or the file of a plugin", name);
  }
  return {std::string(name)};
}

const Plugin& load_plugin(const std::string& path) {
  // Never destroyed: clients may live until the last static object goes.
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Plugin>>;
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  if (error) {
    fail(adder::ErrorCode::kUnsupported, "expected a PJRT plugin at {}: {}", path, error.message());
  }
  const std::lock_guard lock(mutex);
  auto& plugin = loaded[canonical.string()];
  if (plugin == nullptr) plugin = std::make_unique<Plugin>(open_plugin(canonical.string()));
  return *plugin;
}

}  // namespace adder::xla
