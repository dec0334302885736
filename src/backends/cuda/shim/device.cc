// A device made of host memory: work is done before the call that enqueues it returns.
#include "backends/cuda/device.h"

#include <cstring>

#include "core/error.h"

namespace adder::ADDER_CUDA_NS {

Device::Device(int index) : index_(index) {
  ADDER_CHECK(index == 0, "device: expected cuda:0, got cuda:{}", index);
  info_ = {"emulator", 9, 0, 4, 227 << 10, size_t{1} << 30};
}

Device::~Device() = default;

CUstream_st* Device::stream() {
  return stream_;
}

size_t Device::free_bytes() const {
  return info_.memory_bytes;
}

Buffer Device::allocate(size_t bytes) {
  return allocate_host(bytes);
}

void Device::upload(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

void Device::zero(void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

void Device::download(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::synchronize() {}

}  // namespace adder::ADDER_CUDA_NS
