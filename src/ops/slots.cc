#include "ops/slots.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "ops/tile.h"

namespace adder::ops {

const int32_t* checked_slots(std::string_view op, std::string_view name, const ArrayView& indices,
                             int64_t batch, std::string_view state, int64_t slots) {
  thread_local std::vector<int32_t> slot, sorted;
  slot.resize(static_cast<size_t>(std::max<int64_t>(batch, 1)));
  if (!indices) {
    ADDER_CHECK(slots == batch,
                "{}: {}: expected it with {} of {} slots and a batch of {}, got None", op, name,
                state, slots, batch);
    for (int64_t b = 0; b < batch; ++b) slot[static_cast<size_t>(b)] = static_cast<int32_t>(b);
    return slot.data();
  }
  check_shape(op, name, indices, {batch});
  check_integer(op, name, indices);
  sorted.clear();
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t index = load_integer(indices, b);
    ADDER_CHECK(index >= -1 && index < slots, "{}: {}[{}]: expected -1 to {}, got {}", op, name, b,
                slots - 1, index);
    slot[static_cast<size_t>(b)] = static_cast<int32_t>(index);
    if (index >= 0) sorted.push_back(static_cast<int32_t>(index));
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  ADDER_CHECK(twice == sorted.end(), "{}: {}: expected distinct entries, got {} twice", op, name,
              *twice);
  return slot.data();
}

}  // namespace adder::ops
