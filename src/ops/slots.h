// Which slot of the states each row of a decode step uses.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/array_view.h"

namespace adder::ops {

// indices (batch), optional: -1 or in [0, slots), distinct. Without them row b has slot b, and
// slots must be batch. name, state: the arguments' names. Valid until the calling thread's next
// call.
const int32_t* checked_slots(std::string_view op, std::string_view name, const ArrayView& indices,
                             int64_t batch, std::string_view state, int64_t slots);

}  // namespace adder::ops
