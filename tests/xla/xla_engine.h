// Engines on the XLA backend: on its interpreter, or on the device that ADDER_XLA_DEVICE names.
#pragma once

#include "backends/xla/xla_backend.h"
#include "engine/engine_testing.h"
#include "testing/compare.h"
#include "testing/targets.h"

namespace adder::testing {

inline EngineOptions on_xla(int32_t slots, int64_t block = 64) {
  EngineOptions options;
  options.device = xla_device();
  options.slots = slots;
  options.block = block;
  return options;
}

// To the bit on the interpreter, which has one order of additions. A compiler chooses others for
// other shapes, so there the same numbers come out of batches of other sizes.
inline ::testing::AssertionResult same_numbers(const std::vector<float>& got,
                                               const std::vector<float>& want) {
  return xla_device() == "xla:interpreter" ? same_bits(got, want) : close(got, want, kReplay);
}

inline int64_t programs_compiled(Engine& engine) {
  return dynamic_cast<xla::XlaBackend&>(engine.backend()).recorder().executor().compiled();
}

}  // namespace adder::testing
