// Runs CUDA kernels on the CPU, for tests: one fiber per CUDA thread, all on the calling thread.
//
// A fiber runs until it has to wait (a barrier, a warp collective, an mbarrier); then another one
// that can run is taken at random. A fixed seed gives the same order again; over several
// seeds a missing barrier shows as a wrong result. Thread blocks run in random order, a few at a
// time, each with its own shared memory, filled with NaN at first.
//
// Asynchronous copies (cp.async, bulk copies) happen at a random legal moment: at once, or as late
// as something waits for them.
//
// It cannot show speed, races within a stretch without a wait, or weak memory order.
//
// Errors of the kernel (mismatched collectives, a barrier that not all reach, misaligned
// asynchronous copies, endless waiting) throw adder::Error(kInternal) out of run_grid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace adder::emulator {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  Dim3() = default;
  Dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// ADDER_EMULATOR_SEED, else 1.
uint64_t seed_from_environment();

// What the next grids of this OS thread use.
struct Schedule {
  uint64_t seed = seed_from_environment();
  int resident_blocks = 3;  // at most as many run interleaved
};
void set_schedule(const Schedule& schedule);

struct LaunchCount {
  uint64_t grids = 0, blocks = 0, switches = 0;
};
LaunchCount launch_count();  // since the OS thread began

// Called with every launch of this OS thread: the kernel's address and its shape.
using LaunchLog = std::function<void(const void* kernel, const Dim3& grid, const Dim3& block,
                                     size_t shared_bytes)>;
void set_launch_log(LaunchLog log);
void log_launch(const void* kernel, const Dim3& grid, const Dim3& block, size_t shared_bytes);

// Runs `thread_main` once per thread of the grid. A block may have at most 1024 threads and 227 KB
// of shared memory, as on sm_90.
void run_grid(const Dim3& grid, const Dim3& block, size_t shared_bytes,
              const std::function<void()>& thread_main);

// ---- What follows is called by the thread that is running. ----

const Index3& thread_index();
const Index3& block_index();
const Dim3& block_dim();
const Dim3& grid_dim();
std::byte* shared_memory();
unsigned linear_thread();  // within the block

// Waits until `count` threads (a multiple of 32; 0: every thread of the block that has not ended)
// have reached barrier `id`, 0 to 15.
void barrier(int id, unsigned count);
// Lets others run; throws when that has led nowhere for very long.
void nap();

// Every lane of `mask` calls this with the same `kind`; returns the 32 values, of which those
// of `mask` are valid until the next call. T is at most 64 bytes.
constexpr size_t kMaxDeposit = 64;
const std::byte* exchange(uint32_t mask, int kind, const void* value, size_t bytes);
template <typename T>
struct WarpValues {
  const std::byte* base;
  T operator[](unsigned lane) const {
    T value;
    std::memcpy(&value, base + lane * sizeof(T), sizeof(T));
    return value;
  }
};
template <typename T>
WarpValues<T> exchange(uint32_t mask, int kind, const T& value) {
  static_assert(sizeof(T) <= kMaxDeposit);
  return {exchange(mask, kind, &value, sizeof(T))};
}

// cp.async: a copy of the current thread; it has happened once a wait lets no younger group remain.
// `bytes` of `from`, then zeros up to `size`.
void async_copy(void* to, const void* from, size_t size, size_t bytes);
void async_commit();
void async_wait(unsigned groups_left);

// mbarrier: 8 bytes of shared memory, aligned to 8.
void mbarrier_init(uint64_t* barrier, unsigned arrivals);
void mbarrier_expect(uint64_t* barrier, unsigned bytes);  // of transfers; does not arrive
void mbarrier_arrive(uint64_t* barrier);
bool mbarrier_test(uint64_t* barrier, unsigned parity);  // the phase of this parity is complete
// A bulk copy that completes on the barrier. Sizes and addresses are multiples of 16.
void bulk_copy(void* to, const void* from, size_t bytes, uint64_t* barrier);

[[noreturn]] void kernel_error(const char* what);

}  // namespace adder::emulator
