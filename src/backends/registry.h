// Which backends this build has, and how to make one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace adder {

// Names that make_backend accepts in this build, the preferred one first.
std::vector<std::string> available_backends();

// device: "cpu", "ref", or "cuda" (the first GPU) and "cuda:1" (the second). threads <= 0: one per
// CPU that this process may use. pin: worker threads stay on a CPU of their own when there is a
// thread for every CPU. The environment variable ADDER_FORCE_ISA (e.g. "AVX2", "SSE4", "SCALAR" or
// another name that the machine's description shows) pins the instruction set of "cpu". Throws
// Error(kBadInput) for an unknown device or an instruction set that cannot run here, and
// Error(kUnsupported) when the build or the machine has no such device.
std::unique_ptr<Backend> make_backend(std::string_view device, int threads = 0, bool pin = true);

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
  virtual std::string_view name() const = 0;  // of the instruction set
  virtual int threads() const = 0;
  // The ways in which a limit can be approached; the fastest one is the ceiling.
  virtual std::vector<std::string> loops(Limit limit) const = 0;
  // Units per second of one loop, which runs for at least `seconds`.
  virtual double measure(Limit limit, size_t loop, double seconds) = 0;
};

// Probes the processor that runs make_backend(device, threads), with the same instruction set.
std::unique_ptr<MachineProbe> make_machine_probe(int threads = 0);

// The Mamba-1 scan of "cpu" in steps, from the textbook loop to what make_backend runs, for
// benchmarks. Each computes selective_scan whole, on host memory and one thread, with the
// instruction set of make_backend; arguments are checked as there.
struct LadderRung {
  std::string_view name, description;
  std::function<void(const SelectiveScanArgs&)> run;
};
std::vector<LadderRung> make_scan_ladder();

}  // namespace adder
