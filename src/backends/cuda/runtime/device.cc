#include "backends/cuda/device.h"

#include "backends/cuda/runtime/cuda_check.h"

#include "core/error.h"

namespace adder::ADDER_CUDA_NS {
namespace {

void free_device_memory(void* data, size_t /*bytes*/) {
  cudaFree(data);  // waits for work that may still use it; nothing can be done about a failure
}

void free_pinned_memory(void* data, size_t /*bytes*/) {
  cudaFreeHost(data);
}

// The current device of this thread, as it was before.
class KeepDevice {
 public:
  KeepDevice() { ADDER_CUDA_CHECK(cudaGetDevice(&device_)); }
  ~KeepDevice() { cudaSetDevice(device_); }
  KeepDevice(const KeepDevice&) = delete;
  KeepDevice& operator=(const KeepDevice&) = delete;

 private:
  int device_ = 0;
};

class Graph final : public RecordedWork {
 public:
  Graph(Device& device, cudaGraphExec_t executable) : device_(device), executable_(executable) {}
  ~Graph() override { cudaGraphExecDestroy(executable_); }
  void enqueue() override { ADDER_CUDA_CHECK(cudaGraphLaunch(executable_, device_.stream())); }

 private:
  Device& device_;
  cudaGraphExec_t executable_;
};

class PinnedCopies final : public ReadBack {
 public:
  PinnedCopies(Device& device, const void* from, size_t bytes, int depth)
      : device_(device), from_(from), bytes_(bytes), copied_(static_cast<size_t>(depth), nullptr) {
    static_cast<void>(device.stream());  // makes the device the current one
    void* data = nullptr;
    ADDER_CUDA_CHECK(cudaMallocHost(&data, bytes * copied_.size()));
    memory_ = Buffer(data, bytes * copied_.size(), free_pinned_memory);
    for (cudaEvent_t& event : copied_)
      ADDER_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~PinnedCopies() override {
    cudaStreamSynchronize(device_.stream());
    for (cudaEvent_t event : copied_)
      if (event != nullptr) cudaEventDestroy(event);
  }
  void enqueue() override {
    if (written_ - read_ == copied_.size())
      fail(ErrorCode::kInternal, "cuda: more copies in flight than there is memory for");
    const size_t i = written_++ % copied_.size();
    ADDER_CUDA_CHECK(
        cudaMemcpyAsync(at(i), from_, bytes_, cudaMemcpyDeviceToHost, device_.stream()));
    ADDER_CUDA_CHECK(cudaEventRecord(copied_[i], device_.stream()));
  }
  const void* wait() override {
    if (read_ == written_) fail(ErrorCode::kInternal, "cuda: no copy is in flight");
    const size_t i = read_++ % copied_.size();
    ADDER_CUDA_CHECK(cudaEventSynchronize(copied_[i]));
    return at(i);
  }

 private:
  void* at(size_t i) const { return static_cast<std::byte*>(memory_.data()) + i * bytes_; }

  Device& device_;
  const void* from_;
  size_t bytes_, written_ = 0, read_ = 0;
  Buffer memory_;
  std::vector<cudaEvent_t> copied_;
};

}  // namespace

void check_cuda(cudaError_t result, const char* call) {
  if (result != cudaSuccess)
    fail(ErrorCode::kInternal, "cuda: {}: {}", call, cudaGetErrorString(result));
}

Device::Device(int index) : index_(index) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) fail(ErrorCode::kUnsupported, "cuda: no NVIDIA driver is installed");
    fail(ErrorCode::kUnsupported,
         "cuda: expected a driver for CUDA {}.{} or newer, found one for {}.{}", runtime / 1000,
         runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
  }
  if (found != cudaSuccess || count == 0) {
    fail(ErrorCode::kUnsupported, "cuda: no device: {}",
         found == cudaSuccess ? "none is visible" : cudaGetErrorString(found));
  }
  ADDER_CHECK(index >= 0 && index < count, "device: expected cuda:0 to cuda:{}, got cuda:{}",
              count - 1, index);
  cudaDeviceProp properties{};
  ADDER_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  info_ = {properties.name,
           properties.major,
           properties.minor,
           properties.multiProcessorCount,
           properties.sharedMemPerBlockOptin,
           properties.totalGlobalMem};
  if (info_.major < 8) {
    fail(ErrorCode::kUnsupported,
         "cuda:{}: expected compute capability 8.0 or newer, got {}.{} ({})", index, info_.major,
         info_.minor, info_.name);
  }
  ADDER_CUDA_CHECK(cudaSetDevice(index));
  ADDER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Device::~Device() {
  if (call_done_ != nullptr) cudaEventDestroy(call_done_);
  if (upload_stream_ != nullptr) cudaStreamDestroy(upload_stream_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

CUstream_st* Device::stream() {
  make_current();
  return borrowed_ ? *borrowed_ : stream_;
}

void Device::make_current() const {
  ADDER_CUDA_CHECK(cudaSetDevice(index_));
}

size_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  ADDER_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

Buffer Device::allocate(size_t bytes) {
  Buffer buffer = allocate_raw(bytes);
  if (bytes > 0) ADDER_CUDA_CHECK(cudaMemsetAsync(buffer.data(), 0, bytes, memory_stream()));
  return buffer;
}

Buffer Device::allocate_raw(size_t bytes) {
  const KeepDevice keep;
  make_current();
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next check would find it
    fail(ErrorCode::kIo, "cuda:{}: out of memory: asked for {} MB, {} MB of {} MB are free", index_,
         bytes >> 20, free_bytes() >> 20, info_.memory_bytes >> 20);
  }
  check_cuda(result, "cudaMalloc");
  return {data, bytes, free_device_memory};
}

void Device::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  // From pageable memory the call returns when the source has been read.
  ADDER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, memory_stream()));
}

void Device::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0)
    ADDER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
}

void Device::zero(void* to, size_t bytes) {
  if (bytes > 0) ADDER_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, stream()));
}

void Device::download(void* to, const void* from, size_t bytes) {
  if (bytes > 0)
    ADDER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()));
  synchronize();
}

void Device::synchronize() {
  ADDER_CUDA_CHECK(cudaStreamSynchronize(stream()));
}

void Device::begin_call(std::optional<uint64_t> handle) {
  ADDER_CUDA_CHECK(cudaGetDevice(&device_before_call_));
  make_current();
  if (call_done_ == nullptr)
    ADDER_CUDA_CHECK(cudaEventCreateWithFlags(&call_done_, cudaEventDisableTiming));
  // Other programs hand over streams as numbers.
  auto* stream = handle
                     ? reinterpret_cast<cudaStream_t>(*handle)  // NOLINT(performance-no-int-to-ptr)
                     : stream_;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  const cudaError_t asked = cudaStreamIsCapturing(stream, &capturing);
  if (asked != cudaSuccess || capturing != cudaStreamCaptureStatusNone) {
    cudaGetLastError();  // or the next check would find it
    cudaSetDevice(device_before_call_);
    bad_input(
        "cuda:{}: expected a stream on which work can be enqueued, got {}", index_,
        asked == cudaSuccess ? "one that is being captured in a graph" : cudaGetErrorString(asked));
  }
  // Not recorded yet: nothing to wait for.
  ADDER_CUDA_CHECK(cudaStreamWaitEvent(stream, call_done_, 0));
  borrowed_ = stream;
}

void Device::end_call(bool wait) {
  cudaStream_t stream = borrowed_.value_or(stream_);
  borrowed_.reset();
  cudaError_t result = cudaEventRecord(call_done_, stream);
  if (result == cudaSuccess && wait) result = cudaStreamSynchronize(stream);
  cudaSetDevice(device_before_call_);
  check_cuda(result, "the work of a call");
}

int64_t Device::own_stream_handle() const {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(stream_));
}

void Device::begin_recording() {
  if (upload_stream_ == nullptr)
    ADDER_CUDA_CHECK(cudaStreamCreateWithFlags(&upload_stream_, cudaStreamNonBlocking));
  synchronize();  // what is uploaded from here on no longer waits for work before it
  // Relaxed: memory is allocated and uploaded meanwhile.
  ADDER_CUDA_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
  recording_ = true;
}

std::unique_ptr<RecordedWork> Device::end_recording() {
  recording_ = false;
  cudaGraph_t graph = nullptr;
  ADDER_CUDA_CHECK(cudaStreamEndCapture(stream(), &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(result, "cudaGraphInstantiate");
  auto work = std::make_unique<Graph>(*this, executable);
  ADDER_CUDA_CHECK(cudaStreamSynchronize(upload_stream_));
  return work;
}

std::unique_ptr<ReadBack> Device::read_back(const void* from, size_t bytes, int depth) {
  return std::make_unique<PinnedCopies>(*this, from, bytes, depth);
}

}  // namespace adder::ADDER_CUDA_NS
