#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "io/hub.h"
#include "io/hub_manifest.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_name_part(std::string_view part) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !part.empty() && part.size() <= 96 && part[0] != '.' && part[0] != '-' &&
         part.find("..") == std::string_view::npos &&
         part.find_first_not_of(kAllowed) == std::string_view::npos;
}

// The copy in `directory` as a MODEL: the directory, or its only GGUF file.
std::string model_in(const std::string& repo, const std::string& directory) {
  const std::optional<Manifest> manifest = read_manifest(directory + "/" + kManifestName);
  std::vector<std::string> gguf;
  bool other_weights = false;
  for (const auto& [name, file] : manifest->files) {
    if (name.ends_with(".gguf")) gguf.push_back(name);
    other_weights = other_weights || name.ends_with(".safetensors") || name.ends_with(".bin") ||
                    name.ends_with(".pt");
  }
  // Safetensors and pickles are loaded by directory, with the config that lies beside them.
  if (gguf.empty() || other_weights) return directory;
  if (gguf.size() > 1) {
    bad_input("{}: holds {} GGUF files; name one, e.g. {}/{}", repo, gguf.size(), directory,
              gguf[0]);
  }
  return directory + "/" + gguf[0];
}

}  // namespace

bool is_repo_name(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && is_name_part(text.substr(0, slash)) &&
         is_name_part(text.substr(slash + 1));
}

std::string pulled_directory(const std::string& repo) {
  if (!is_repo_name(repo)) {
    bad_input("repository '{}': expected owner/name of letters, digits, '.', '_' and '-'", repo);
  }
  std::string base = environment("ADDER_CACHE");
  if (base.empty()) {
    // The XDG specification has relative paths ignored.
    const std::string xdg = environment("XDG_CACHE_HOME");
    const std::string home = environment("HOME");
    if (xdg.starts_with('/')) {
      base = xdg + "/adder";
    } else if (!home.empty()) {
      base = home + "/.cache/adder";
    } else {
      bad_input("no cache directory: set ADDER_CACHE or HOME");
    }
  }
  return base + "/models/" + repo;
}

std::optional<std::string> find_pulled(const std::string& repo) {
  const std::string directory = pulled_directory(repo);
  const std::optional<Manifest> manifest = read_manifest(directory + "/" + kManifestName);
  if (!manifest || manifest->repo != repo || !files_present(directory, *manifest)) {
    return std::nullopt;
  }
  return directory;
}

std::string resolve_model_path(const std::string& argument) {
  std::error_code error;
  if (fs::exists(argument, error)) return argument;
  if (!is_repo_name(argument)) bad_input("{}: no such file or directory", argument);
  if (const std::optional<std::string> directory = find_pulled(argument)) {
    return model_in(argument, *directory);
  }
  // The journal stands for an interrupted download.
  const bool started = fs::exists(pulled_directory(argument) + "/" + kJournalName, error);
  bad_input("{}: no such path, and the repository of this name is {}; run: adder pull {}", argument,
            started ? "not completely downloaded" : "not downloaded", argument);
}

PullOptions pull_options_from_environment() {
  PullOptions options;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) {
    options.endpoint = endpoint;
  }
  options.token = environment("HF_TOKEN");
  return options;
}

}  // namespace adder
