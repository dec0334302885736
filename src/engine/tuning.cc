#include "engine/tuning.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "core/error.h"
#include "core/machine.h"
#include "engine/atomic_file.h"
#include "io/json_lenient.h"
#include "kernels/ssd_scan.h"

namespace adder {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxBlock = 65536;

}  // namespace

std::string tuning_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/adder/tune.json";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/adder/tune.json" : "";
}

std::string tuning_key(const ModelConfig& c, const std::string& description) {
  return fmt::format("{}; {}; {} {} x {}, {} x {}", cpu_name(), description, c.family, c.n_layer,
                     c.d_model, c.d_inner, c.d_state);
}

FoundTuning find_tuning(const std::string& path, const std::string& key) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return {};
  try {
    const JsonValue file = JsonValue::parse_file(path);
    if (file.get_int("version").value_or(0) != kVersion) {
      bad_input("{}: field 'version': expected {}", path, kVersion);
    }
    const auto entries = file.get_object("entries");
    const auto entry = entries ? entries->get_object(key) : std::nullopt;
    if (!entry) return {};
    const int64_t block = entry->get_int("block").value_or(0);
    // Other blocks would change the last bits of results, which is not for a cache to decide.
    if (block < 1 || block > kMaxBlock || block % kSsdChunkAlign != 0) {
      bad_input("{}: field 'block': expected a multiple of {} up to {}, got {}", path,
                kSsdChunkAlign, kMaxBlock, block);
    }
    return {Tuning{block}, {}};
  } catch (const Error& e) {
    return {std::nullopt, e.what()};
  }
}

void store_tuning(const std::string& path, const std::string& key, const Tuning& tuning) {
  nlohmann::ordered_json file = {{"version", kVersion}, {"entries", nlohmann::json::object()}};
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    try {
      const JsonValue old = JsonValue::parse_file(path);
      const auto entries = old.get_object("entries");
      if (old.get_int("version").value_or(0) == kVersion && entries) {
        file["entries"] = nlohmann::ordered_json::parse(entries->dump());
      }
    } catch (const Error&) {
      // A file that nobody can read is of no use to anybody.
    }
  }
  file["entries"][key] = {{"block", tuning.block}};
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, ignored);  // the file tells what is wrong
  AtomicFile out(path);
  const std::string text = file.dump(1) + "\n";
  out.write(std::as_bytes(std::span(text.data(), text.size())));
  out.commit();
}

}  // namespace adder
