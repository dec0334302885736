// Not a test: runs the kernels under the emulator at the widths of real models, a few tokens at a
// time, and prints how each is launched, for tools/cuda_evidence.py.

#include <fmt/format.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/ladder.h"
#include "backends/cuda/shim/emulator.h"
#include "core/error.h"
#include "testing/causal_conv1d_problem.h"
#include "testing/dense.h"
#include "testing/selective_scan_problem.h"
#include "testing/ssd_scan_problem.h"

namespace adder::testing {
namespace {

// Addresses and names of this program's functions, as nm prints them.
std::map<uintptr_t, std::string> symbols(const std::string& program) {
  std::map<uintptr_t, std::string> names;
  const std::string command = "nm -C --defined-only '" + program + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 4096> line;
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    unsigned long address = 0;
    char kind = 0;
    int name_at = 0;
    if (std::sscanf(line.data(), "%lx %c %n", &address, &kind, &name_at) < 2) continue;
    std::string name = line.data() + name_at;
    while (!name.empty() && name.back() == '\n') name.pop_back();
    names[address] = name;
  }
  return names;
}

void run_recurrences(Backend& backend, Rng& rng) {
  for (const int64_t tokens : {1, 64}) {
    const Batch batch = Batch::single(tokens);
    for (const int64_t d_inner : {1536, 5120}) {
      const auto scan = SelectiveScanProblem::random(rng, tokens, d_inner, 16);
      scan.run(backend, batch, scan.random_state(rng));
    }
    const auto conv = CausalConv1dProblem::random(rng, tokens, 1536, 4);
    conv.run(backend, batch, conv.random_state(rng));
    const auto ssd = SsdScanProblem::random(rng, tokens, 4, 64, 128);
    ssd.run(backend, batch, ssd.random_state(rng));
  }
}

// Every rung of the ladder at the width of mamba-130m, 64 tokens.
void run_ladder(Backend& backend, Rng& rng) {
  const auto p = SelectiveScanProblem::random(rng, 64, 1536, 16);
  for (const LadderRung& rung : cuda_emulated::make_ladder(0)) {
    if (rung.activations != DType::kF32) continue;
    p.run_by(
        [&](const SelectiveScanArgs& args) {
          if (rung.supports(args)) rung.run(args);
        },
        backend, Batch::single(64), p.random_state(rng));
  }
}

void run_rows(Backend& backend, Rng& rng) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                           DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const Weight w = Weight::random(rng, type, 256, 768, 0.05f);
    for (const int64_t rows : {1, 8, 64}) run_matmul(backend, rng.normals(rows * 768), w, {}, rows);
  }
  const Tensor none;
  Buffer memory = backend.allocate(4 * 2560 * sizeof(float));
  const Tensor rows(memory.data(), DType::kF32, {4, 2560});
  backend.rms_norm({rows, none, none, 1e-5f, rows});
  backend.gated_rms_norm({rows, rows, rows.select(0), 1e-5f, 1, false, rows});
  backend.gather_rows(rows, std::array{0, 1}, rows.slice(0, 2, 2));
  std::array<SampleParams, 2> params;
  params[1].temperature = 0;
  std::array<int32_t, 2> ids;
  backend.sample({rows.slice(0, 0, 2), 2560, params, ids});
}

}  // namespace
}  // namespace adder::testing

int main(int, char** argv) {
  using namespace adder;
  using namespace adder::testing;
  try {
    const auto names = symbols(argv[0]);
    const uintptr_t base = _r_debug.r_map->l_addr;  // of the program itself
    emulator::set_launch_log(
        [&](const void* kernel, const auto&, const auto& block, size_t shared) {
          const auto found = names.find(reinterpret_cast<uintptr_t>(kernel) - base);
          fmt::print("launch {} threads {} shared {}\n", block.x * block.y * block.z, shared,
                     found == names.end() ? "?" : found->second);
        });
    const auto backend = cuda_emulated::make_backend(0);
    Rng rng(1);
    run_recurrences(*backend, rng);
    run_ladder(*backend, rng);
    run_rows(*backend, rng);
  } catch (const Error& e) {
    fmt::print(stderr, "cuda_shapes: {}\n", e.what());
    return 1;
  }
  return 0;
}
