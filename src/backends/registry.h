// Which backends this build has, and how to make one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/array_device.h"
#include "kernels/backend.h"

namespace adder {

// Names that make_backend accepts in this build, the preferred one first.
std::vector<std::string> available_backends();

// "cuda:1" and "xla:cpu" in their parts. "cuda" is known in every build, whether it has it or not.
// Throws Error(kBadInput) for what cannot be the name of a device.
struct DeviceName {
  std::string backend;
  int index = 0;       // of a GPU
  std::string plugin;  // of "xla": what is behind the colon
};
DeviceName parse_device(std::string_view device);

// device: "cpu", "ref", "cuda" (the first GPU) and "cuda:1" (the second), or "xla" (the first PJRT
// plugin that is found), "xla:cpu" and other names of plugins, "xla:/path/plugin.so", and
// "xla:interpreter", which needs none and is slow. threads <= 0: one per
// CPU that this process may use. pin: worker threads stay on a CPU of their own when there is a
// thread for every CPU. The environment variable ADDER_FORCE_ISA (e.g. "AVX2", "SSE4", "SCALAR" or
// another name that the machine's description shows) pins the instruction set of "cpu". Throws
// Error(kBadInput) for an unknown device or an instruction set that cannot run here, and
// Error(kUnsupported) when the build or the machine has no such device. jit_cache_mb: megabytes of
// compiled programs that "xla" keeps on the disk, 0 for none; without a number those of
// ADDER_JIT_CACHE_MB, else 1024.
std::unique_ptr<Backend> make_backend(std::string_view device, int threads = 0, bool pin = true,
                                      std::optional<uint64_t> jit_cache_mb = {});

// GPU `index`, for arrays that others have in its memory. Throws as make_backend("cuda:index").
std::unique_ptr<ArrayDevice> make_array_device(int index);
// Whether this build has any; the machine may have none.
bool has_array_device();

// The programs that a backend has needed since it was made.
struct ProgramCounts {
  int64_t compiled = 0, from_cache = 0;  // taken from the disk
  int64_t on_disk = 0;                   // of both, those that the next process will find there
};
// Nothing: the backend compiles no programs, as all but "xla", or something is around it.
std::optional<ProgramCounts> program_counts(const Backend& backend);

// Bytes in use on a device of its own.
struct DeviceMemory {
  int64_t used = 0, limit = 0;  // limit 0: not known
  bool whole_device = false;    // by its driver, with other programs; else what this backend holds
};
// Nothing: the backend's memory is that of the process, or something is around it, or it is "cuda".
std::optional<DeviceMemory> device_memory(const Backend& backend);

// An argument or a result of a program.
struct ProgramValue {
  // The address of the weight or the state that it is, which nobody may read; 0: it is given anew
  // for each run, and has a name.
  uintptr_t memory = 0;
  std::string name;
  std::string dtype;  // as MLIR writes it: "f32", "ui64"
  std::vector<int64_t> shape;
  int32_t donated = -1;  // of an argument: the result that takes over its memory
};
struct ExportedProgram {
  std::string text;  // StableHLO, one function `main`
  std::vector<ProgramValue> arguments, results;
};
// The program of what `step` calls on an "xla" backend, and of the tensor that it returns, the
// first result ("logits"); behind it the states that it changes. Nothing is run. Throws
// Error(kUnsupported) for another backend.
ExportedProgram export_step(Backend& backend, const std::function<Tensor()>& step);
// The program of a decode loop (kernels/decode_loop.h) of so many rows, without repeat penalty.
// greedy: nothing is drawn. stop_ids: of a row, at most. Names as in decode_program.h, which also
// says what comes in which order.
ExportedProgram export_decode_loop(Backend& backend, int64_t rows, int64_t vocab_limit,
                                   int64_t stop_ids, bool greedy, const DecodeStep& step);

// What bounds an operation on this machine.
enum class Limit {
  kMemoryRead,  // bytes per second from memory, far beyond any cache
  kL3Read,      // bytes per second
  kL2Read,      // bytes per second
  kFma,         // float32 operations per second; a multiply-add is two
  kInt8,        // int8 operations per second, sums in int32; a multiply-add is two
  kExp2         // float32 powers of two per second, with the scans' own exp2
};
inline constexpr Limit kLimits[] = {Limit::kMemoryRead, Limit::kL3Read, Limit::kL2Read,
                                    Limit::kFma,        Limit::kInt8,   Limit::kExp2};

// Loops that do nothing but load one resource of the machine: the ceilings that measured times are
// held against. Allocates the memory of a limit (half a gigabyte to two for kMemoryRead) when
// it is measured first.
class MachineProbe {
 public:
  virtual ~MachineProbe() = default;
  virtual std::string_view name() const = 0;  // of the instruction set, or of the GPU
  virtual int threads() const = 0;            // or multiprocessors
  // The ways in which a limit can be approached; the fastest one is the ceiling.
  virtual std::vector<std::string> loops(Limit limit) const = 0;
  // Units per second of one loop, which runs for at least `seconds`.
  virtual double measure(Limit limit, size_t loop, double seconds) = 0;
};

// Probes what runs make_backend(device, threads): the GPU, or the processor with the same
// instruction set. Throws as make_backend(), and Error(kUnsupported) for "xla".
std::unique_ptr<MachineProbe> make_machine_probe(std::string_view device, int threads = 0);

// The Mamba-1 scan in steps, from the textbook loop to what make_backend(device) runs, for
// benchmarks. On the CPU each computes selective_scan whole on one thread, with the instruction set
// of make_backend; on a GPU it is enqueued. Arguments lie in the device's memory and are checked as
// there.
struct LadderRung {
  std::string_view name, description;
  // Of u, delta, B, C, z and out: kF32, or kBF16 for some rungs of a GPU.
  DType activations = DType::kF32;
  std::function<bool(const SelectiveScanArgs&)> supports;
  std::function<void(const SelectiveScanArgs&)> run;
  std::function<void()> synchronize;  // waits for what run() has enqueued
};
// Throws as make_backend(), and Error(kUnsupported) for "xla".
std::vector<LadderRung> make_scan_ladder(std::string_view device);

}  // namespace adder
