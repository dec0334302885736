#include "core/machine.h"

#include <sys/resource.h>

#include <fstream>

namespace adder {
namespace {

// The rest of the first line of a file that begins with `key`, behind its colon.
std::string field_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(": \t", key.size());
    if (begin != std::string::npos) return line.substr(begin);
  }
  return {};
}

}  // namespace

std::string cpu_name() {
  const std::string name = field_of("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

uint64_t available_memory() {
  const std::string kilobytes = field_of("/proc/meminfo", "MemAvailable");
  return kilobytes.empty() ? 0 : std::stoull(kilobytes) * 1024;
}

uint64_t peak_resident_bytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace adder
