// A device made of host memory: work is done before the call that enqueues it returns.
#include "backends/cuda/device.h"

#include <cstring>
#include <utility>

#include "backends/cuda/shim/guarded_memory.h"
#include "core/error.h"

namespace adder::ADDER_CUDA_NS {
namespace {

class WorkList final : public RecordedWork {
 public:
  explicit WorkList(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
  void enqueue() override {
    for (const auto& part : work_) part();
  }

 private:
  std::vector<std::function<void()>> work_;
};

// Copies that nobody may expect before they are waited for, except that they then have the values
// of their moment.
class HostCopies final : public ReadBack {
 public:
  HostCopies(const void* from, size_t bytes, int depth)
      : from_(from), bytes_(bytes), copies_(static_cast<size_t>(depth)) {}
  void enqueue() override {
    if (written_ - read_ == copies_.size())
      fail(ErrorCode::kInternal, "cuda: more copies in flight than there is memory for");
    const auto* begin = static_cast<const std::byte*>(from_);
    copies_[written_++ % copies_.size()].assign(begin, begin + bytes_);
  }
  const void* wait() override {
    if (read_ == written_) fail(ErrorCode::kInternal, "cuda: no copy is in flight");
    return copies_[read_++ % copies_.size()].data();
  }

 private:
  const void* from_;
  size_t bytes_, written_ = 0, read_ = 0;
  std::vector<std::vector<std::byte>> copies_;
};

}  // namespace

Device::Device(int index) : index_(index) {
  ADDER_CHECK(index == 0, "device: expected cuda:0, got cuda:{}", index);
  info_ = {"emulator", 9, 0, 4, 227 << 10, size_t{1} << 30};
}

Device::~Device() = default;

CUstream_st* Device::stream() {
  return stream_;
}

size_t Device::free_bytes() const {
  return info_.memory_bytes;
}

Buffer Device::allocate(size_t bytes) {
  return allocate_host(bytes);
}

Buffer Device::allocate_raw(size_t bytes) {
  return emulator::allocate_guarded(bytes);
}

void Device::begin_call(std::optional<uint64_t> /*stream*/) {}

void Device::end_call(bool /*wait*/) {}

int64_t Device::own_stream_handle() const {
  return 1;  // the default stream, which DLPack has no other name for
}

void Device::upload(void* to, const void* from, size_t bytes) {
  const emulator::DeviceAccess access;
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) enqueue([=] { std::memmove(to, from, bytes); });
}

void Device::zero(void* to, size_t bytes) {
  if (bytes > 0) enqueue([=] { std::memset(to, 0, bytes); });
}

void Device::download(void* to, const void* from, size_t bytes) {
  synchronize();
  const emulator::DeviceAccess access;
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::synchronize() {
  if (recording_) fail(ErrorCode::kInternal, "cuda: what is recorded cannot be waited for");
}

void Device::enqueue(std::function<void()> work) {
  if (recording_) {
    recorded_.push_back(std::move(work));
    return;
  }
  const emulator::DeviceAccess access;
  work();
}

void Device::begin_recording() {
  recording_ = true;
}

std::unique_ptr<RecordedWork> Device::end_recording() {
  recording_ = false;
  return std::make_unique<WorkList>(std::exchange(recorded_, {}));
}

std::unique_ptr<ReadBack> Device::read_back(const void* from, size_t bytes, int depth) {
  return std::make_unique<HostCopies>(from, bytes, depth);
}

}  // namespace adder::ADDER_CUDA_NS
