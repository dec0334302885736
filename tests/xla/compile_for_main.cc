// Has a plugin compile programs for a device that this machine does not have, and says what memory
// they take there. libtpu does that without a TPU:
//   ADDER_XLA_DUMP=programs test_xla
//   TPU_SKIP_MDS_QUERY=1 xla_compile_for LIBTPU.SO v5e:2x2 programs/*/program.mlir
// Exits with 1 where a program is refused.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "backends/xla/pjrt_error.h"
#include "backends/xla/pjrt_plugin.h"
#include "core/error.h"
#include "testing/pjrt_compiler.h"

namespace adder::xla {
namespace {

class Compiler {
 public:
  Compiler(const std::string& plugin, const std::string& topology)
      : api_(*reinterpret_cast<const pjrt::CompilerApi*>(load_plugin(plugin).api)) {
    if (api_.api.struct_size < sizeof(pjrt::CompilerApi)) {
      fail(ErrorCode::kUnsupported, "{}: it cannot compile for other devices", plugin);
    }
    auto args = pjrt::arguments<pjrt::TopologyCreateArgs>();
    args.name = topology.data();
    args.name_size = topology.size();
    check_pjrt(api_.api, api_.topology_create(&args), "describe " + topology);
    topology_ = args.topology;  // lives as long as the process
  }

  // Bytes of arguments, results that are not aliased with them, and temporaries.
  std::string compile(std::string text) const {
    auto program = pjrt::arguments<pjrt::ProgramText>();
    program.code = text.data();
    program.code_size = text.size();
    program.format = "mlir";
    program.format_size = 4;
    auto args = pjrt::arguments<pjrt::CompileArgs>();
    args.topology = topology_;
    args.program = &program;
    args.compile_options = "\x1a\x04\x20\x01\x28\x01";  // as the executor's
    args.compile_options_size = 6;
    check_pjrt(api_.api, api_.compile(&args), "compile");
    auto memory = pjrt::arguments<pjrt::MemoryStatsArgs>();
    memory.executable = args.executable;
    const auto unknown = take_failure(api_.api, api_.memory_stats(&memory));
    auto destroy = pjrt::arguments<pjrt::ExecutableDestroyArgs>();
    destroy.executable = args.executable;
    take_failure(api_.api, api_.api.executable_destroy(&destroy));
    if (unknown) return "memory unknown: " + unknown->message;
    return fmt::format("code {}, arguments {}, results {}, of which aliased {}, temporary {} bytes",
                       memory.code, memory.arguments, memory.results, memory.aliased,
                       memory.temporary);
  }

 private:
  const pjrt::CompilerApi& api_;
  const pjrt::Topology* topology_ = nullptr;
};

int compile_all(int count, char** words) {
  if (count < 4) {
    fmt::print(stderr, "usage: {} PLUGIN TOPOLOGY PROGRAM...\n", words[0]);
    return 2;
  }
  int refused = 0;
  try {
    const Compiler compiler(words[1], words[2]);
    for (int i = 3; i < count; ++i) {
      std::ifstream file(words[i], std::ios::binary);
      try {
        fmt::print("{}: {}\n", words[i],
                   compiler.compile({std::istreambuf_iterator<char>(file), {}}));
      } catch (const Error& e) {
        fmt::print("{}: {}\n", words[i], e.what());
        ++refused;
      }
    }
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  fmt::print("{} programs for {}, {} refused\n", count - 3, words[2], refused);
  return refused > 0 ? 1 : 0;
}

}  // namespace
}  // namespace adder::xla

int main(int count, char** words) {
  return adder::xla::compile_all(count, words);
}
