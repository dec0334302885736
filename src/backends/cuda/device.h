// One GPU, its memory, and the stream that all work of a backend goes through in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/namespace.h"
#include "core/buffer.h"

struct CUstream_st;
struct CUevent_st;

namespace adder::ADDER_CUDA_NS {

// Throws Error(kBadInput) for a grid that a launch cannot have.
void check_grid(int64_t x, int64_t y, int64_t z);

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t shared_bytes = 0;  // that a block may ask for
  size_t memory_bytes = 0;
};

// Work that was recorded, to be enqueued as a whole as often as one likes.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void enqueue() = 0;
};

// Results on their way to the host: several copies of one device buffer in flight.
class ReadBack {
 public:
  virtual ~ReadBack() = default;
  // Enqueues a copy. At most `depth` may wait for the host.
  virtual void enqueue() = 0;
  // Waits for the oldest copy; the memory is valid until `depth` more have been enqueued.
  virtual const void* wait() = 0;
};

class Device {
 public:
  // Throws Error(kUnsupported) in one line when there is no such device, its driver is too old, or
  // it is older than sm_80.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  size_t free_bytes() const;

  // Zero-filled. Throws Error(kIo) that names what was asked for and what is free.
  Buffer allocate(size_t bytes);
  // The same with undefined contents. Leaves this thread's current device as it is.
  Buffer allocate_raw(size_t bytes);
  // Enqueued. The host's memory may be used again at once.
  void upload(void* to, const void* from, size_t bytes);
  void copy(void* to, const void* from, size_t bytes);
  void zero(void* to, size_t bytes);
  // After all work before it; waits.
  void download(void* to, const void* from, size_t bytes);
  // Waits for all work, and throws Error(kInternal) when some of it failed.
  void synchronize();

  // Between the two, work goes to a stream of the caller's: a handle, or none for this device's
  // own. It begins after the work of the call before, whatever stream that had. Throws
  // Error(kBadInput) for a stream that is being captured. The thread's current device is as before
  // afterwards.
  void begin_call(std::optional<uint64_t> stream);
  void end_call(bool wait);
  // As DLPack writes it.
  int64_t own_stream_handle() const;

  // Until end_recording() work is recorded and not done. Memory is still allocated and uploaded at
  // once, and is no part of the recording; download() and synchronize() cannot be recorded.
  void begin_recording();
  std::unique_ptr<RecordedWork> end_recording();
  std::unique_ptr<ReadBack> read_back(const void* from, size_t bytes, int depth);
#ifdef ADDER_CUDA_EMULATED
  void enqueue(std::function<void()> work);
#endif

  // Work may be enqueued from one thread at a time. Makes the device this thread's current one.
  CUstream_st* stream();

 private:
  [[maybe_unused]] int index_ = 0;
  bool recording_ = false;
  CUstream_st* stream_ = nullptr;
#ifdef ADDER_CUDA_EMULATED
  std::vector<std::function<void()>> recorded_;
#else
  CUstream_st* memory_stream() {
    return recording_ ? upload_stream_ : stream();
  }
  void make_current() const;
  CUstream_st* upload_stream_ = nullptr;  // while the other one records
  std::optional<CUstream_st*> borrowed_;  // during a call
  CUevent_st* call_done_ = nullptr;
  int device_before_call_ = 0;
#endif
  DeviceInfo info_;
};

}  // namespace adder::ADDER_CUDA_NS
