#include "backends/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/machine_probe.h"
#include "backends/cpu/scan_ladder.h"
#include "backends/ref/ref_backend.h"
#ifdef ADDER_HAVE_CUDA
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/ladder.h"
#include "backends/cuda/probe.h"
#endif
#include "backends/xla/program_export.h"
#include "backends/xla/xla_backend.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder {
namespace {

struct DeviceOptions {
  int index, threads;
  bool pin;
  std::string_view plugin;
  std::optional<uint64_t> jit_cache_mb;
};

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const DeviceOptions&);
};

// The preferred one first.
constexpr Entry kBackends[] = {
    {"cpu", [](const DeviceOptions& o) { return make_cpu_backend(o.threads, {}, o.pin); }},
    {"ref",
     [](const DeviceOptions&) -> std::unique_ptr<Backend> {
       return std::make_unique<RefBackend>();
     }},
#ifdef ADDER_HAVE_CUDA
    {"cuda", [](const DeviceOptions& o) { return cuda::make_backend(o.index); }},
#endif
    {"xla", [](const DeviceOptions& o) { return xla::make_backend(o.plugin, o.jit_cache_mb); }},
};

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const Entry& entry : kBackends) names.emplace_back(entry.name);
  return names;
}

DeviceName parse_device(std::string_view device) {
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon);
  auto known = available_backends();
  if (std::ranges::find(known, "cuda") == known.end()) known.emplace_back("cuda");
  ADDER_CHECK(std::ranges::find(known, name) != known.end(), "device: expected one of {}, got '{}'",
              fmt::join(known, ", "), device);
  int index = 0;
  if (name == "xla") {
    if (colon == std::string_view::npos) return {std::string(name), 0, ""};
    ADDER_CHECK(colon + 1 < device.size(),
                "device: expected xla, xla:interpreter, xla:cpu or xla:/path/plugin.so, got '{}'",
                device);
    return {std::string(name), 0, std::string(device.substr(colon + 1))};
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = device.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    ADDER_CHECK(name == "cuda", "device: expected {} without a number, got '{}'", name, device);
    ADDER_CHECK(error == std::errc() && end == digits.end() && index >= 0,
                "device: expected cuda, cuda:0, cuda:1, ..., got '{}'", device);
  }
  return {std::string(name), index, ""};
}

std::unique_ptr<Backend> make_backend(std::string_view device, int threads, bool pin,
                                      std::optional<uint64_t> jit_cache_mb) {
  const DeviceName asked = parse_device(device);
  for (const Entry& entry : kBackends)
    if (entry.name == asked.backend)
      return entry.make({asked.index, threads, pin, asked.plugin, jit_cache_mb});
  fail(ErrorCode::kUnsupported,
       "device: {}: this program was built without CUDA; -DADDER_CUDA=ON builds it, with nvcc",
       device);
}

std::optional<ProgramCounts> program_counts(const Backend& backend) {
  const auto* compiler = dynamic_cast<const xla::XlaBackend*>(&backend);
  if (compiler == nullptr) return std::nullopt;
  const xla::Executor& executor = compiler->executor();
  return ProgramCounts{executor.compiled(), executor.from_cache(), executor.on_disk()};
}

std::optional<DeviceMemory> device_memory(const Backend& backend) {
  const auto* recorder = dynamic_cast<const xla::XlaBackend*>(&backend);
  if (recorder == nullptr) return std::nullopt;
  const auto use = recorder->executor().memory();
  if (!use) return std::nullopt;
  return DeviceMemory{use->used, use->limit, use->whole_device};
}

namespace {

xla::XlaBackend& xla_backend(Backend& backend) {
  auto* found = dynamic_cast<xla::XlaBackend*>(&backend);
  if (found == nullptr)
    fail(ErrorCode::kUnsupported, "export: expected the backend xla, got {}", backend.name());
  return *found;
}

}  // namespace

ExportedProgram export_step(Backend& backend, const std::function<Tensor()>& step) {
  return xla::export_step(xla_backend(backend), step);
}

ExportedProgram export_decode_loop(Backend& backend, int64_t rows, int64_t vocab_limit,
                                   int64_t stop_ids, bool greedy, const DecodeStep& step) {
  return xla::export_decode_loop(xla_backend(backend), rows, vocab_limit, stop_ids, greedy, step);
}

std::unique_ptr<MachineProbe> make_machine_probe(std::string_view device, int threads) {
  const DeviceName asked = parse_device(device);
#ifdef ADDER_HAVE_CUDA
  if (asked.backend == "cuda") return cuda::make_probe(asked.index);
  if (asked.backend == "xla" && asked.plugin == "cuda") return cuda::make_probe(0);
#endif
  if (asked.backend == "xla" && !xla::computes_on_host(asked.plugin))
    fail(ErrorCode::kUnsupported,
         "device: {}: expected one whose limits can be measured: cpu, cuda, or xla on a CPU",
         device);
  if (asked.backend == "cuda") make_backend(device);  // throws: not in this build
  return make_cpu_probe(threads);
}

std::vector<LadderRung> make_scan_ladder(std::string_view device) {
  const DeviceName asked = parse_device(device);
  if (asked.backend == "xla")
    fail(ErrorCode::kUnsupported, "device: {}: the scan ladder is of cpu and cuda only", device);
#ifdef ADDER_HAVE_CUDA
  if (asked.backend == "cuda") return cuda::make_ladder(asked.index);
#endif
  if (asked.backend == "cuda") make_backend(device);  // throws: not in this build
  const auto context = std::make_shared<CpuContext>(1, isa_from_environment());
  std::vector<LadderRung> rungs;
  for (const ScanRung& rung : scan_ladder()) {
    rungs.push_back({rung.name, rung.description, DType::kF32,
                     [](const SelectiveScanArgs&) { return true; },
                     [&rung, context](const SelectiveScanArgs& args) {
                       check(args);
                       rung.run(args, *context);
                     },
                     [] {}});
  }
  return rungs;
}

}  // namespace adder
