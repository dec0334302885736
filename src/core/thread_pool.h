// The only compute threads of the program.
//
// A pool runs one parallel loop at a time: the caller and size() - 1 workers take chunks of the
// index range from a shared counter. Which thread runs which chunk is left to chance, so an
// operation must give the same bits for every assignment: a chunk may only write its own outputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace adder {

class ThreadPool {
 public:
  // threads <= 0: one per CPU that this process may use. pin: workers are pinned, one to a CPU,
  // when there are as many threads as CPUs, because some schedulers leave two of them on one core.
  // With fewer threads they are not: another process may have pinned its own to the same CPUs.
  explicit ThreadPool(int threads = 0, bool pin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(begin, end, thread) for consecutive chunks of at most `grain` indices that cover
  // [0, count); `thread` is in [0, size()), for per-thread scratch. Returns when all are done.
  // Allocates nothing. `body` must not throw and must not call parallel_for of the same pool.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    run_body(count, grain, 0, body);
  }

  // The same in chunks of at least `grain` indices (but for the last) that begin with half of a
  // thread's share and get smaller: for loops over neighbouring memory, where long chunks are one
  // stream each, and short ones at the end let all threads finish together.
  template <typename Body>
  void parallel_stream(int64_t count, int64_t grain, Body&& body) {
    run_body(count, grain, 2 * size_, body);
  }

 private:
  using Function = void (*)(void* context, int64_t begin, int64_t end, int thread);
  template <typename Body>
  void run_body(int64_t count, int64_t grain, int64_t divisor, Body& body) {
    run(
        count, grain, divisor,
        [](void* context, int64_t begin, int64_t end, int thread) {
          (*static_cast<Body*>(context))(begin, end, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  // divisor: a chunk is that part of what is left, and at least the grain; 0: the grain.
  void run(int64_t count, int64_t grain, int64_t divisor, Function function, void* context);

  struct Shared;
  std::unique_ptr<Shared> shared_;
  int size_ = 1;
};

// CPUs this process may run on (affinity mask, not the machine's total).
int available_cpus();

// Pins the calling thread to the CPU that a pool of `threads` that pins leaves free; does nothing
// where the pool would not pin. Threads started afterwards inherit it: for programs that own their
// main thread, not for libraries.
void pin_calling_thread(int threads);

}  // namespace adder
