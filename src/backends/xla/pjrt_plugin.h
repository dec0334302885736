// Finds and loads PJRT plugins: shared libraries that compile StableHLO and run it on a device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/xla/pjrt_api.h"

namespace adder::xla {

struct Plugin {
  std::string path;      // canonical
  std::string file;      // its last part
  std::string identity;  // file, size, time and version of the API: another build has another one
  const pjrt::Api* api = nullptr;
};

// Files that may be what is meant, the preferred one first: `name` itself where it is a path, the
// known places of "cpu", "cuda" or "tpu" in the Python environments, or for an empty name what
// ADDER_PJRT_PLUGIN lists (names too, separated by ':'), else all that is found of tpu (where
// there is a device), cuda, cpu.
// Never empty: throws Error(kUnsupported) which says what was looked for, and where.
std::vector<std::string> plugin_candidates(std::string_view name);

// Loads and initializes a plugin, once in the life of the process, and never unloads it: plugins do
// not survive that. Throws Error(kUnsupported) where the file is missing, damaged, not a plugin, or
// too old.
const Plugin& load_plugin(const std::string& path);

}  // namespace adder::xla
