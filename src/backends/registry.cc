#include "backends/registry.h"

#include <fmt/ranges.h>

#include "backends/ref/ref_backend.h"
#include "core/error.h"
// The CPU backend joins when the last of its operations is there.
#if __has_include("backends/cpu/embedding.cc") &&                                    \
                  __has_include(                                                     \
                      "backends/cpu/rms_norm.cc") &&                                 \
                      __has_include(                                                 \
                          "backends/cpu/matmul.cc") &&                               \
                          __has_include(                                             \
                              "backends/cpu/sample.cc") &&                           \
                              __has_include(                                         \
                                  "backends/cpu/causal_conv1d.cc") &&                \
                                  __has_include("backends/cpu/selective_scan.cc") && \
                                                __has_include("backends/cpu/ssd_scan.cc")
#include "backends/cpu/cpu_backend.h"
#define ADDER_HAS_CPU_BACKEND 1
#endif

namespace adder {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads);
};

// The preferred one first.
constexpr Entry kBackends[] = {
#ifdef ADDER_HAS_CPU_BACKEND
    {"cpu", [](int threads) { return make_cpu_backend(threads); }},
#endif
    {"ref", [](int) -> std::unique_ptr<Backend> { return std::make_unique<RefBackend>(); }},
};

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const Entry& entry : kBackends) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Backend> make_backend(std::string_view device, int threads) {
  for (const Entry& entry : kBackends)
    if (entry.name == device) return entry.make(threads);
  bad_input("device: expected one of {}, got '{}'", fmt::join(available_backends(), ", "), device);
}

}  // namespace adder
