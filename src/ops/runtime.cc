#include "ops/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "backends/registry.h"
#include "core/thread_pool.h"

namespace adder::ops {
namespace {

// Below this a call is over before a sleeping thread has woken: some tens of microseconds.
constexpr int64_t kWorthThreads = 1 << 17;

struct Pool {
  std::mutex mutex;
  std::atomic<int> threads{0};  // 0: not chosen yet
  std::unique_ptr<ThreadPool> pool;
};

// Never destroyed: a call may be under way in another thread when the process ends. A fork has
// none of its parent's workers, and perhaps a mutex that one of its parent's threads held, so it
// gets a new one.
std::atomic<Pool*> shared_pool{nullptr};

Pool& pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    shared_pool = new Pool;
    pthread_atfork(nullptr, nullptr, [] {
      const int threads = shared_pool.load()->threads;
      shared_pool = new Pool;
      shared_pool.load()->threads = threads;
    });
  });
  return *shared_pool;
}

int chosen_threads(const Pool& p) {
  const int threads = p.threads;
  return threads > 0 ? threads : available_cpus();
}

}  // namespace

void set_num_threads(int n) {
  Pool& p = pool();
  const std::scoped_lock lock(p.mutex);
  p.threads = std::max(n, 0);
  p.pool.reset();
}

int get_num_threads() {
  return chosen_threads(pool());
}

Backend& local_backend() {
  thread_local const std::unique_ptr<Backend> backend = make_backend("cpu", 1, false);
  return *backend;
}

bool has_devices() {
  return has_array_device();
}

ArrayDevice& shared_device(int index) {
  // Never destroyed: its arrays may be freed when the process ends.
  static auto* mutex = new std::mutex;
  static auto* devices = new std::map<int, std::unique_ptr<ArrayDevice>>;
  const std::scoped_lock lock(*mutex);
  std::unique_ptr<ArrayDevice>& device = (*devices)[index];
  if (!device) device = make_array_device(index);
  return *device;
}

void run_tasks(int64_t count, int64_t work, const std::function<void(int64_t)>& body) {
  if (count > 1 && work > kWorthThreads / count) {
    Pool& p = pool();
    const std::unique_lock lock(p.mutex, std::try_to_lock);
    if (lock.owns_lock() && chosen_threads(p) > 1) {
      if (!p.pool) p.pool = std::make_unique<ThreadPool>(chosen_threads(p), false);
      std::exception_ptr error;
      std::once_flag first;
      p.pool->parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        try {
          for (int64_t task = begin; task < end; ++task) body(task);
        } catch (...) {
          std::call_once(first, [&] { error = std::current_exception(); });
        }
      });
      if (error) std::rethrow_exception(error);
      return;
    }
  }
  for (int64_t task = 0; task < count; ++task) body(task);
}

}  // namespace adder::ops
