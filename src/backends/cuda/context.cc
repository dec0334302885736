#include "backends/cuda/context.h"

#include <algorithm>

#include "core/error.h"

namespace adder::ADDER_CUDA_NS {

void check_grid(int64_t x, int64_t y, int64_t z) {
  constexpr int64_t kMaxX = (int64_t{1} << 31) - 1, kMaxYZ = 65535;
  ADDER_CHECK(x <= kMaxX && y <= kMaxYZ && z <= kMaxYZ,
              "cuda: expected a grid of at most ({}, {}, {}) blocks, got ({}, {}, {})", kMaxX,
              kMaxYZ, kMaxYZ, x, y, z);
}

void CudaContext::grow(Buffer& buffer, size_t bytes) {
  if (buffer.size() >= bytes && buffer.data() != nullptr) return;
  buffer = Buffer();  // first, so that both need not fit
  buffer = device.allocate(std::max<size_t>(bytes, 256));
}

// Recorded work keeps the memory that it was recorded with.
void* CudaContext::keep(size_t bytes) {
  recorded_->kept.push_back(device.allocate(std::max<size_t>(bytes, 256)));
  return recorded_->kept.back().data();
}

std::unique_ptr<RecordedWork> CudaContext::record(RecordedMemory& memory,
                                                  const std::function<void()>& step) {
  recorded_ = &memory;
  device.begin_recording();
  try {
    step();
  } catch (...) {
    recorded_ = nullptr;
    try {
      device.end_recording();
    } catch (const Error&) {  // the first error is the cause
    }
    throw;
  }
  recorded_ = nullptr;
  return device.end_recording();
}

DeviceBatch CudaContext::upload(const PackedBatch& batch) {
  if (recorded_ != nullptr) {
    const PackedBatch& known = *recorded_->batch;
    if (batch.seq_start.data() != known.seq_start.data() ||
        batch.state_slot.data() != known.state_slot.data() ||
        batch.state_slot.size() != known.state_slot.size())
      fail(ErrorCode::kInternal, "cuda: a recorded step may use no batch but its own");
    return recorded_->device_batch;
  }
  const auto& starts = batch.seq_start;
  const auto& slots = batch.state_slot;
  const bool same = batch_.size() == starts.size() + slots.size() &&
                    std::equal(starts.begin(), starts.end(), batch_.begin()) &&
                    std::equal(slots.begin(), slots.end(), batch_.end() - std::ssize(slots));
  if (!same) {
    batch_.assign(starts.begin(), starts.end());
    batch_.insert(batch_.end(), slots.begin(), slots.end());
    grow(batch_buffer_, batch_.size() * sizeof(int32_t));
    device.upload(batch_buffer_.data(), batch_.data(), batch_.size() * sizeof(int32_t));
  }
  int64_t longest = 0;
  for (size_t i = 0; i < slots.size(); ++i)
    longest = std::max<int64_t>(longest, starts[i + 1] - starts[i]);
  const auto* memory = static_cast<const int32_t*>(batch_buffer_.data());
  return {memory, memory + starts.size(), static_cast<int32_t>(slots.size()), batch.n_tokens(),
          longest};
}

const void* CudaContext::upload(const void* host, size_t bytes) {
  if (recorded_ != nullptr) {
    if (host == recorded_->tokens) return recorded_->device_tokens;
    void* memory = keep(bytes);
    device.upload(memory, host, bytes);
    return memory;
  }
  grow(upload_buffer_, bytes);
  device.upload(upload_buffer_.data(), host, bytes);
  return upload_buffer_.data();
}

void* CudaContext::scratch(size_t bytes) {
  if (recorded_ != nullptr) {
    if (recorded_->scratch_bytes < bytes) {
      recorded_->scratch = keep(bytes);
      recorded_->scratch_bytes = bytes;
    }
    return recorded_->scratch;
  }
  grow(scratch_buffer_, bytes);
  return scratch_buffer_.data();
}

uint32_t* CudaContext::counters(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(uint32_t);
  if (recorded_ != nullptr) {
    if (recorded_->counter_bytes < bytes) {
      recorded_->counters = keep(bytes);
      recorded_->counter_bytes = bytes;
    }
    return static_cast<uint32_t*>(recorded_->counters);
  }
  grow(counter_buffer_, bytes);
  return static_cast<uint32_t*>(counter_buffer_.data());
}

}  // namespace adder::ADDER_CUDA_NS
