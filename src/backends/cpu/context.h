// What an operation of the CPU backend works with: threads, instruction set, scratch memory.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/cpu/isa.h"
#include "core/buffer.h"
#include "core/thread_pool.h"

namespace adder {

// Scratch grows to the largest request and stays: no allocation in steady state. All pointers are
// aligned to 64 bytes, contents are undefined, and a request invalidates earlier pointers of the
// same kind. Request before parallel_for: its body must not throw.
struct CpuContext {
  CpuContext(int threads, Isa chosen, bool pin = true) : pool(threads, pin), isa(chosen) {
    per_thread.resize(static_cast<size_t>(pool.size()));
  }

  // Makes scratch(thread) at least `floats` long for every thread.
  void reserve_scratch(size_t floats) {
    for (Buffer& b : per_thread) grow(b, floats);
  }
  float* scratch(int thread) const {
    return static_cast<float*>(per_thread[static_cast<size_t>(thread)].data());
  }
  // One block seen by all threads.
  float* shared_scratch(size_t floats) {
    grow(shared, floats);
    return static_cast<float*>(shared.data());
  }

  ThreadPool pool;
  Isa isa;

 private:
  static void grow(Buffer& buffer, size_t floats) {
    if (buffer.size() < floats * sizeof(float)) buffer = allocate_host(floats * sizeof(float));
  }

  std::vector<Buffer> per_thread;
  Buffer shared;
};

}  // namespace adder
