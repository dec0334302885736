#include "backends/cuda/probe_kernels.h"

#include "backends/cuda/launch.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 256;
// Blocks per multiprocessor: 8 warps each, enough to fill every pipe and to hide memory.
constexpr int kBlocks = 4;
// Independent chains of a thread, more than the latency of an operation needs.
constexpr int kChains = 8;

struct ReadParams {
  const uint4* memory;
  int64_t vectors;
  int passes;
  bool shared_by_all;
  float* sink;
};

__global__ void read_kernel(ReadParams p) {
  const int64_t first = (p.shared_by_all ? int64_t{blockIdx.x} * kThreads : 0) + threadIdx.x;
  const int64_t step = (p.shared_by_all ? int64_t{gridDim.x} : 1) * kThreads;
  unsigned bits = 0;
  for (int pass = 0; pass < p.passes; ++pass) {
    // The offset depends on what was read, as far as the compiler knows.
    const uint4* memory = p.memory + (bits == 0x12345678u ? 1 : 0);
#pragma unroll 4
    for (int64_t i = first; i + 1 < p.vectors; i += step) {
      const uint4 v = p.shared_by_all ? load_stream(memory + i) : memory[i];
      bits ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (bits == 0x9e3779b9u) *p.sink = 1;
}

struct LoopParams {
  int steps;
  float factor;
  float* sink;
};

__global__ void fma_kernel(LoopParams p) {
  float chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = static_cast<float>(threadIdx.x + i);
  for (int step = 0; step < p.steps; ++step)
    for (int i = 0; i < kChains; ++i) chain[i] = fmaf(chain[i], p.factor, p.factor);
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == 0.123f) *p.sink = sum;
}

__global__ void int8_kernel(LoopParams p) {
  int chain[kChains];
  const int factor = static_cast<int>(__float_as_uint(p.factor));
  for (int i = 0; i < kChains; ++i) chain[i] = static_cast<int>(threadIdx.x) + i;
  for (int step = 0; step < p.steps; ++step)
    for (int i = 0; i < kChains; ++i) chain[i] = __dp4a(chain[i], factor, chain[i]);
  int sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == 123456789) *p.sink = 1;
}

__global__ void exp2_kernel(LoopParams p) {
  float chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = -static_cast<float>(threadIdx.x + i) * 1e-3f;
  for (int step = 0; step < p.steps; ++step)
    for (int i = 0; i < kChains; ++i) chain[i] = ex2(-chain[i]);
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == 0.123f) *p.sink = sum;
}

int64_t grid_blocks(const Device& device) {
  return int64_t{kBlocks} * device.info().multiprocessors;
}

double run_loop(Device& device, void (*kernel)(LoopParams), int steps, double units, float* sink) {
  const int64_t grid = grid_blocks(device);
  launch(device, kernel, {blocks(grid), dim3(kThreads)}, LoopParams{steps, 0.999f, sink});
  return static_cast<double>(grid) * kThreads * kChains * steps * units;
}

}  // namespace

double probe_read(Device& device, const void* memory, int64_t bytes, int passes, bool shared_by_all,
                  float* sink) {
  const int64_t grid = grid_blocks(device), vectors = bytes / static_cast<int64_t>(sizeof(uint4));
  launch(device, read_kernel, {blocks(grid), dim3(kThreads)},
         ReadParams{static_cast<const uint4*>(memory), vectors, passes, shared_by_all, sink});
  return static_cast<double>(bytes) * passes * (shared_by_all ? 1.0 : static_cast<double>(grid));
}

double probe_fma(Device& device, int steps, float* sink) {
  return run_loop(device, fma_kernel, steps, 2, sink);
}

double probe_int8(Device& device, int steps, float* sink) {
  return run_loop(device, int8_kernel, steps, 8, sink);  // four multiply-adds
}

double probe_exp2(Device& device, int steps, float* sink) {
  return run_loop(device, exp2_kernel, steps, 1, sink);
}

}  // namespace adder::ADDER_CUDA_NS
