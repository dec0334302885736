// Memory that stands for a device's and that the host cannot touch: what reads it outside of a
// kernel or a copy ends the process, as reading a GPU's memory does.
#pragma once

#include <cstddef>

#include "core/buffer.h"

namespace adder::emulator {

// Full of NaN at first.
Buffer allocate_guarded(size_t bytes);

// While one of these lives, guarded memory can be read and written.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace adder::emulator
