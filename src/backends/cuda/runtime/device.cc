#include "backends/cuda/device.h"

#include "backends/cuda/runtime/cuda_check.h"

#include "core/error.h"

namespace adder::ADDER_CUDA_NS {
namespace {

void free_device_memory(void* data, size_t /*bytes*/) {
  cudaFree(data);  // waits for work that may still use it; nothing can be done about a failure
}

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
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

CUstream_st* Device::stream() {
  ADDER_CUDA_CHECK(cudaSetDevice(index_));
  return stream_;
}

size_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  ADDER_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

Buffer Device::allocate(size_t bytes) {
  static_cast<void>(stream());
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next check would find it
    fail(ErrorCode::kIo, "cuda:{}: out of memory: asked for {} MB, {} MB of {} MB are free", index_,
         bytes >> 20, free_bytes() >> 20, info_.memory_bytes >> 20);
  }
  check_cuda(result, "cudaMalloc");
  Buffer buffer(data, bytes, free_device_memory);
  zero(data, bytes);
  return buffer;
}

void Device::upload(void* to, const void* from, size_t bytes) {
  // From pageable memory the call returns when the source has been read.
  if (bytes > 0)
    ADDER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()));
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

}  // namespace adder::ADDER_CUDA_NS
