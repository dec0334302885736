#include "backends/registry.h"

#include <fmt/ranges.h>

#include <charconv>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/machine_probe.h"
#include "backends/cpu/scan_ladder.h"
#include "backends/ref/ref_backend.h"
#ifdef ADDER_HAVE_CUDA
#include "backends/cuda/cuda_backend.h"
#endif
#include "core/error.h"
#include "kernels/checks.h"

namespace adder {
namespace {

struct DeviceOptions {
  int index, threads;
  bool pin;
};

struct Entry {
  std::string_view name;
  bool has_index;  // "name:1" is the second of its kind
  std::unique_ptr<Backend> (*make)(const DeviceOptions&);
};

// The preferred one first.
constexpr Entry kBackends[] = {
    {"cpu", false, [](const DeviceOptions& o) { return make_cpu_backend(o.threads, {}, o.pin); }},
    {"ref", false,
     [](const DeviceOptions&) -> std::unique_ptr<Backend> {
       return std::make_unique<RefBackend>();
     }},
#ifdef ADDER_HAVE_CUDA
    {"cuda", true, [](const DeviceOptions& o) { return cuda::make_backend(o.index); }},
#endif
};

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const Entry& entry : kBackends) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Backend> make_backend(std::string_view device, int threads, bool pin) {
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon);
  for (const Entry& entry : kBackends) {
    if (entry.name != name || (colon != std::string_view::npos && !entry.has_index)) continue;
    int index = 0;
    if (colon != std::string_view::npos) {
      const std::string_view digits = device.substr(colon + 1);
      const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
      ADDER_CHECK(error == std::errc() && end == digits.end() && index >= 0,
                  "device: expected {} or {}:0, {}:1, ..., got '{}'", name, name, name, device);
    }
    return entry.make({index, threads, pin});
  }
  if (name == "cuda")
    fail(ErrorCode::kUnsupported,
         "device: '{}': this build has no CUDA backend: it is built where nvcc is found", device);
  bad_input("device: expected one of {}, got '{}'", fmt::join(available_backends(), ", "), device);
}

std::unique_ptr<MachineProbe> make_machine_probe(int threads) {
  return make_cpu_probe(threads);
}

std::vector<LadderRung> make_scan_ladder() {
  const auto context = std::make_shared<CpuContext>(1, isa_from_environment());
  std::vector<LadderRung> rungs;
  for (const ScanRung& rung : scan_ladder()) {
    rungs.push_back({rung.name, rung.description, [&rung, context](const SelectiveScanArgs& args) {
                       check(args);
                       rung.run(args, *context);
                     }});
  }
  return rungs;
}

}  // namespace adder
