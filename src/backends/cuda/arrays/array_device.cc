#include "backends/cuda/arrays/array_device.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "backends/cuda/arrays/array_ops.h"
#include "backends/cuda/ops.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder::ADDER_CUDA_NS {
namespace {

// Temporaries of a call lie in memory that the next one takes over, because allocating waits for
// the device. More than this is given back at the end of a call.
constexpr size_t kKeptBytes = size_t{256} << 20;
constexpr size_t kLeastBytes = size_t{1} << 20;
constexpr size_t kAlign = 256;

bool is_number(const ArrayView& a) {
  return !a.is_complex && a.dtype != DType::kI32 && a.dtype != DType::kI64;
}

class CudaArrayDevice final : public ArrayDevice {
 public:
  explicit CudaArrayDevice(int index) : context_(index) {}

  int64_t own_stream() override { return context_.device.own_stream_handle(); }

  void begin(std::optional<uint64_t> stream) override {
    std::unique_lock turn(turn_);
    context_.device.begin_call(stream);
    static_cast<void>(turn.release());  // end() gives it up
  }

  void end(bool wait) override {
    const std::unique_lock turn(turn_, std::adopt_lock);
    expected_ = std::min(asked_, kKeptBytes);
    asked_ = used_ = 0;
    // Freeing waits for the work that uses it.
    if (blocks_.size() > 1 || (!blocks_.empty() && blocks_.front().size() > kKeptBytes))
      blocks_.clear();
    context_.device.end_call(wait);
  }

  std::byte* temporary(size_t bytes) override {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    asked_ += bytes;
    if (blocks_.empty() || used_ + bytes > blocks_.back().size()) {
      blocks_.push_back(context_.device.allocate_raw(std::max({bytes, expected_, kLeastBytes})));
      used_ = 0;
    }
    std::byte* taken = static_cast<std::byte*>(blocks_.back().data()) + used_;
    used_ += bytes;
    return taken;
  }

  Buffer allocate(size_t bytes) override { return context_.device.allocate_raw(bytes); }
  void download(void* to, const std::byte* from, size_t bytes) override {
    context_.device.download(to, from, bytes);
  }
  void upload(std::byte* to, const void* from, size_t bytes) override {
    context_.device.upload(to, from, bytes);
  }
  void zero(std::byte* to, size_t bytes) override { context_.device.zero(to, bytes); }

  void copy(const ArrayView& from, const ArrayView& to, float scale) override {
    const bool equal = from.dtype == to.dtype && from.is_complex == to.is_complex;
    if ((!equal || scale != 1.0f) && (!is_number(from) || !is_number(to)))
      fail(ErrorCode::kInternal, "copy: expected equal dtypes or real numbers, got {} and {}",
           from.describe(), to.describe());
    copy_array(context_, from, to, scale);
  }
  void state_update(const StateUpdateArrays& arrays) override {
    ADDER_CUDA_NS::state_update(context_, arrays);
  }
  void conv(const ConvArrays& arrays) override { ADDER_CUDA_NS::conv(context_, arrays); }
  void conv_update(const ConvUpdateArrays& arrays) override {
    ADDER_CUDA_NS::conv_update(context_, arrays);
  }
  void norm(const NormArrays& arrays) override { ADDER_CUDA_NS::norm(context_, arrays); }
  void selective_scan(const SelectiveScanArgs& args) override {
    check(args);
    ADDER_CUDA_NS::selective_scan(context_, args);
  }
  void ssd_scan(const SsdScanArgs& args) override {
    check(args);
    ADDER_CUDA_NS::ssd_scan(context_, args);
  }

 private:
  std::mutex turn_;
  CudaContext context_;
  std::vector<Buffer> blocks_;       // of temporaries; the last one is being filled
  size_t used_ = 0;                  // of it
  size_t asked_ = 0, expected_ = 0;  // by this call; by the next one
};

}  // namespace

std::unique_ptr<ArrayDevice> make_array_device(int device_index) {
  return std::make_unique<CudaArrayDevice>(device_index);
}

}  // namespace adder::ADDER_CUDA_NS
