// The plugin that tests of programs run on too: the one that ADDER_PJRT_PLUGIN names.
#pragma once

#include <cstdlib>

#include "backends/xla/executor.h"
#include "testing/fake_pjrt.h"

namespace adder::xla {

// Null where no plugin is named. It keeps no programs on the disk, and lives until the process
// ends.
inline Executor* plugin_under_test() {
  static Executor* const executor = [] {
    const ScopedEnvironment no_cache("ADDER_JIT_CACHE_MB", "0");
    return std::getenv("ADDER_PJRT_PLUGIN") ? make_pjrt_executor("").release() : nullptr;
  }();
  return executor;
}

}  // namespace adder::xla
