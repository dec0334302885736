#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace adder {
namespace {

// How often a waiting thread looks before it sleeps: about 20 microseconds, longer than the gap
// between two operations of one decode step and far shorter than a scheduler tick. With more
// threads than CPUs a thread that looks keeps a CPU from one that works, so those sleep at once.
constexpr int kSpins = 2000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Asked once: a thread that has pinned itself would see its own CPU only.
const std::vector<int>& allowed_cpus() {
  static const std::vector<int> allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cpus;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
    return cpus;
  }();
  return allowed;
}

int pool_size(int threads) {
  return threads > 0 ? threads : available_cpus();
}

// A pool pins when it has a thread for every CPU.
bool fills_machine(int size) {
  return size > 1 && static_cast<size_t>(size) == allowed_cpus().size();
}

void pin_thread(pthread_t thread, int index) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(allowed_cpus()[static_cast<size_t>(index)], &set);
  pthread_setaffinity_np(thread, sizeof set, &set);  // a refusal costs speed only
}

}  // namespace

int available_cpus() {
  return std::max<int>(1, static_cast<int>(allowed_cpus().size()));
}

struct ThreadPool::Shared {
  std::atomic<uint32_t> epoch{0};  // a new value starts a loop
  std::atomic<int> running{0};     // workers that have not finished the current loop
  std::atomic<int64_t> next{0};    // first index nobody has taken
  std::atomic<bool> stop{false};
  int spins = kSpins;
  int64_t count = 0, grain = 1, divisor = 0;
  Function function = nullptr;
  void* context = nullptr;
  std::vector<std::jthread> workers;

  void take_chunks(int thread) {
    if (divisor == 0) {
      for (;;) {
        const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= count) return;
        function(context, begin, std::min(count, begin + grain), thread);
      }
    }
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const int64_t end = std::min(count, begin + std::max(grain, (count - begin) / divisor));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      function(context, begin, end, thread);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  void work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      uint32_t now = epoch.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < spins; ++spin) {
        relax();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        epoch.wait(seen, std::memory_order_acquire);
        continue;
      }
      seen = now;
      if (stop.load(std::memory_order_relaxed)) return;
      take_chunks(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : shared_(std::make_unique<Shared>()) {
  size_ = pool_size(threads);
  if (static_cast<size_t>(size_) > allowed_cpus().size()) shared_->spins = 0;
  for (int i = 1; i < size_; ++i) {
    shared_->workers.emplace_back([shared = shared_.get(), i] { shared->work(i); });
    if (pin && fills_machine(size_)) pin_thread(shared_->workers.back().native_handle(), i);
  }
}

void pin_calling_thread(int threads) {
  if (fills_machine(pool_size(threads))) pin_thread(pthread_self(), 0);
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->epoch.fetch_add(1, std::memory_order_release);
  shared_->epoch.notify_all();
}

void ThreadPool::run(int64_t count, int64_t grain, int64_t divisor, Function function,
                     void* context) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (size_ == 1 || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      function(context, begin, std::min(count, begin + grain), 0);
    }
    return;
  }
  Shared& s = *shared_;
  s.count = count;
  s.grain = grain;
  s.divisor = divisor;
  s.function = function;
  s.context = context;
  s.next.store(0, std::memory_order_relaxed);
  s.running.store(size_ - 1, std::memory_order_relaxed);
  s.epoch.fetch_add(1, std::memory_order_release);
  s.epoch.notify_all();
  s.take_chunks(0);
  int left = s.running.load(std::memory_order_acquire);
  for (int spin = 0; left != 0 && spin < s.spins; ++spin) {
    relax();
    left = s.running.load(std::memory_order_acquire);
  }
  while (left != 0) {
    s.running.wait(left, std::memory_order_acquire);
    left = s.running.load(std::memory_order_acquire);
  }
}

}  // namespace adder
