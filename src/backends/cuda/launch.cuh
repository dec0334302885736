// Starting kernels: every launch is checked, on a GPU and under the emulator alike.
#pragma once

#include <cstdint>

#include "backends/cuda/arch.cuh"
#include "backends/cuda/device.h"
#ifndef ADDER_CUDA_EMULATED
#include "backends/cuda/runtime/cuda_check.h"
#endif

namespace adder::ADDER_CUDA_NS {

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline dim3 blocks(int64_t x, int64_t y = 1, int64_t z = 1) {
  check_grid(x, y, z);
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

// A kernel takes one struct of plain values and device pointers. A grid of nothing is not started.
template <typename Params>
void launch(Device& device, void (*kernel)(Params), const LaunchShape& shape,
            const Params& params) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#ifdef ADDER_CUDA_EMULATED
  emulator::log_launch(reinterpret_cast<const void*>(kernel), shape.grid, shape.block,
                       shape.shared_bytes);
  device.enqueue([kernel, shape, params] {
    emulator::run_grid(shape.grid, shape.block, shape.shared_bytes, [&] { kernel(params); });
  });
#else
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kWithoutAsking)
    ADDER_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shape.shared_bytes)));
  void* arguments[] = {const_cast<Params*>(&params)};
  ADDER_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.grid, shape.block,
                                    arguments, shape.shared_bytes, device.stream()));
#endif
}

}  // namespace adder::ADDER_CUDA_NS
