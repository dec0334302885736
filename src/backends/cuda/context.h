// What the operations of one CUDA backend work with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/device.h"
#include "kernels/batch.h"

namespace adder::ADDER_CUDA_NS {

// A PackedBatch in device memory.
struct DeviceBatch {
  const int32_t* seq_start;   // (n_seqs + 1)
  const int32_t* state_slot;  // (n_seqs)
  int32_t n_seqs;
  int64_t n_tokens;
  int64_t longest;  // rows of the longest sequence
};

// What a recorded step refers to, for as long as it may run.
struct RecordedMemory {
  // Host memory that stands for device memory: uploads of it are not made.
  const int32_t* tokens = nullptr;
  const int32_t* device_tokens = nullptr;
  const PackedBatch* batch = nullptr;
  DeviceBatch device_batch{};
  void* scratch = nullptr;
  size_t scratch_bytes = 0;
  void* counters = nullptr;
  size_t counter_bytes = 0;
  std::vector<Buffer> kept;
};

// Scratch memory grows to the largest request and stays: no allocation in steady state.
class CudaContext {
 public:
  explicit CudaContext(int device_index) : device(device_index) {}

  // All layers of a step have the same batch, which is uploaded once: as long as it does not change
  // in value, the copy of the last call is returned. Valid until the next call.
  DeviceBatch upload(const PackedBatch& batch);
  // A copy of `bytes` host bytes, valid until the next call.
  const void* upload(const void* host, size_t bytes);
  // Contents are undefined; valid until the next request.
  void* scratch(size_t bytes);
  // Counters that are 0, and that a kernel leaves at 0.
  uint32_t* counters(int64_t count);

  // What `step` enqueues, recorded and not done. `memory` must outlive it.
  std::unique_ptr<RecordedWork> record(RecordedMemory& memory, const std::function<void()>& step);

  Device device;

 private:
  void grow(Buffer& buffer, size_t bytes);
  void* keep(size_t bytes);

  RecordedMemory* recorded_ = nullptr;  // while something is recorded

  std::vector<int32_t> batch_;  // seq_start, then state_slot, as they lie in batch_buffer_
  Buffer batch_buffer_, upload_buffer_, scratch_buffer_, counter_buffer_;
};

}  // namespace adder::ADDER_CUDA_NS
