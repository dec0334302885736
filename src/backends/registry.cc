#include "backends/registry.h"

#include <fmt/ranges.h>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/machine_probe.h"
#include "backends/cpu/scan_ladder.h"
#include "backends/ref/ref_backend.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads, bool pin);
};

// The preferred one first.
constexpr Entry kBackends[] = {
    {"cpu", [](int threads, bool pin) { return make_cpu_backend(threads, {}, pin); }},
    {"ref", [](int, bool) -> std::unique_ptr<Backend> { return std::make_unique<RefBackend>(); }},
};

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const Entry& entry : kBackends) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Backend> make_backend(std::string_view device, int threads, bool pin) {
  for (const Entry& entry : kBackends)
    if (entry.name == device) return entry.make(threads, pin);
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
