// Threads and backends of the drop-in operations.
//
// The work of a call is cut into tasks that share nothing but inputs. Each runs on a thread with a
// single-threaded backend of that thread's own, so calls from many threads at once need no lock:
// a call that finds the pool taken by another runs its tasks on its own thread. The bits of a
// result depend on neither.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/array_device.h"
#include "kernels/backend.h"

namespace adder::ops {

// Threads that a large call may use, its caller included. n <= 0: one per CPU that this process may
// use, which is also the default.
void set_num_threads(int n);
int get_num_threads();

// The calling thread's backend.
Backend& local_backend();

// Whether this build can work in the memory of GPUs.
bool has_devices();
// GPU `index`, made when it is first asked for. Throws as make_array_device().
ArrayDevice& shared_device(int index);

// Calls body(task) for every task in [0, count). work: about how many multiply-adds a task costs;
// small sums of it stay on the calling thread. An exception of a task is thrown here, after all
// have come to their end.
void run_tasks(int64_t count, int64_t work, const std::function<void(int64_t)>& body);

}  // namespace adder::ops
