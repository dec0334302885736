// Engines on the interpreter of the XLA backend.
#pragma once

#include "backends/xla/xla_backend.h"
#include "engine/engine_testing.h"

namespace adder::testing {

inline EngineOptions on_interpreter(int32_t slots, int64_t block = 64) {
  EngineOptions options;
  options.device = "xla:interpreter";
  options.slots = slots;
  options.block = block;
  return options;
}

inline int64_t programs_compiled(Engine& engine) {
  return dynamic_cast<xla::XlaBackend&>(engine.backend()).recorder().executor().compiled();
}

}  // namespace adder::testing
