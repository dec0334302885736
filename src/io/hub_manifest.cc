#include "io/hub_manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/hub_listing.h"
#include "io/json_lenient.h"

namespace adder {
namespace {

constexpr int64_t kMaxManifestBytes = 4 << 20;
constexpr int64_t kFormat = 1;

}  // namespace

std::string read_text_file(const std::string& file, int64_t max_bytes) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const int64_t size = in ? static_cast<int64_t>(in.tellg()) : -1;
  if (size < 0) fail(ErrorCode::kIo, "{}: cannot read: {}", file, std::strerror(errno));
  if (size > max_bytes) {
    fail(ErrorCode::kIo, "{}: expected at most {} bytes, got {}", file, max_bytes, size);
  }
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(text.data(), size)) fail(ErrorCode::kIo, "{}: cannot read all of it", file);
  return text;
}

void write_text_file(const std::string& file, const std::string& text) {
  // In the same directory, or rename() could not replace the file in one step.
  const std::string temporary = file + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool good = fd >= 0;
  for (size_t done = 0; good && done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    good = wrote >= 0;
    if (good) done += static_cast<size_t>(wrote);
  }
  good = good && fsync(fd) == 0 && rename(temporary.c_str(), file.c_str()) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!good) {
    unlink(temporary.c_str());
    fail(ErrorCode::kIo, "{}: cannot write: {}", file, std::strerror(error));
  }
}

void sync_directory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, "{}: cannot open: {}", directory, std::strerror(errno));
  // Some file systems cannot sync a directory (EINVAL); the rename is then as safe as it gets.
  fsync(fd);
  close(fd);
}

std::optional<Manifest> read_manifest(const std::string& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    const JsonValue json = JsonValue::parse(read_text_file(file, kMaxManifestBytes), file);
    if (json.get_int("format") != kFormat) return std::nullopt;
    Manifest manifest{json.get_string("repo").value_or(""),
                      json.get_string("revision").value_or(""),
                      json.get_string("commit").value_or(""),
                      {}};
    const auto files = json.get_array("files");
    for (const JsonValue& entry : files.value_or(std::vector<JsonValue>{})) {
      const std::string name = entry.get_string("name").value_or("");
      // Files named here may be removed later; a directory may have come from somebody else.
      if (!is_inside_path(name)) return std::nullopt;
      manifest.files[name] = {
          entry.get_int("size").value_or(-1), entry.get_string("sha256").value_or(""),
          entry.get_string("version").value_or(""), entry.get_string("etag").value_or("")};
    }
    return manifest;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_manifest(const std::string& file, const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& [name, pulled] : manifest.files) {
    files.push_back({{"name", name},
                     {"size", pulled.size},
                     {"sha256", pulled.sha256},
                     {"version", pulled.version},
                     {"etag", pulled.etag}});
  }
  const nlohmann::ordered_json document = {{"format", kFormat},
                                           {"repo", manifest.repo},
                                           {"revision", manifest.revision},
                                           {"commit", manifest.commit},
                                           {"files", files}};
  // `replace`: an etag is whatever bytes the server sent.
  write_text_file(
      file, document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

bool files_present(const std::string& directory, const Manifest& manifest) {
  if (manifest.files.empty()) return false;
  for (const auto& [name, pulled] : manifest.files) {
    std::error_code error;
    const auto size = std::filesystem::file_size(std::filesystem::path(directory) / name, error);
    if (error || static_cast<int64_t>(size) != pulled.size) return false;
  }
  return true;
}

}  // namespace adder
