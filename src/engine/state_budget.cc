#include "engine/state_budget.h"

#include <algorithm>

#include "core/machine.h"
#include "model/config.h"

namespace adder {

int32_t slots_that_fit(const Checkpoint& checkpoint, int32_t wanted) {
  const auto memory = static_cast<int64_t>(available_memory());
  if (memory == 0) return wanted;
  const int64_t fitting = memory / 4 / derive_config(checkpoint).state_bytes();
  return static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, wanted));
}

}  // namespace adder
