#include "backends/cuda/probe.h"

#include <algorithm>
#include <chrono>

#include "backends/cuda/probe_kernels.h"
#include "core/error.h"

namespace adder::ADDER_CUDA_NS {
namespace {

double seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

class CudaProbe final : public MachineProbe {
 public:
  explicit CudaProbe(int device_index) : device_(device_index), sink_(device_.allocate(4)) {}

  std::string_view name() const override { return device_.info().name; }
  int threads() const override { return device_.info().multiprocessors; }

  std::vector<std::string> loops(Limit limit) const override {
    switch (limit) {
      case Limit::kMemoryRead:
        return {"1 GB, 16 bytes a thread"};
      case Limit::kL3Read:
        return {"16 MB in the L2 cache"};
      case Limit::kL2Read:
        return {"64 KB in each L1 cache"};
      default:
        return {"registers"};
    }
  }

  double measure(Limit limit, size_t loop, double at_least) override {
    ADDER_CHECK(loop == 0, "probe: expected loop 0, got {}", loop);
    auto* sink = static_cast<float*>(sink_.data());
    switch (limit) {
      case Limit::kMemoryRead:
        return rate(at_least, [&] { return read(int64_t{1} << 30, 1, true); });
      case Limit::kL3Read:
        return rate(at_least, [&] { return read(int64_t{16} << 20, 16, true); });
      case Limit::kL2Read:
        return rate(at_least, [&] { return read(int64_t{64} << 10, 64, false); });
      case Limit::kFma:
        return rate(at_least, [&] { return probe_fma(device_, kSteps, sink); });
      case Limit::kInt8:
        return rate(at_least, [&] { return probe_int8(device_, kSteps, sink); });
      case Limit::kExp2:
        return rate(at_least, [&] { return probe_exp2(device_, kSteps / 8, sink); });
    }
    fail(ErrorCode::kInternal, "probe: unknown limit");
  }

 private:
  static constexpr int kSteps = 4096;

  // Units per second of launches that follow each other without a wait between them.
  template <typename Launch>
  double rate(double at_least, Launch&& enqueue) {
    enqueue();
    device_.synchronize();
    double done = 0, now = 0;
    const double begin = seconds();
    do {
      for (int i = 0; i < 4; ++i) done += enqueue();
      device_.synchronize();
      now = seconds();
    } while (now - begin < at_least);
    return done / (now - begin);
  }

  double read(int64_t bytes, int passes, bool shared_by_all) {
    if (memory_.size() < static_cast<size_t>(bytes)) {
      memory_ = Buffer();
      memory_ = device_.allocate(static_cast<size_t>(bytes));
    }
    return probe_read(device_, memory_.data(), bytes, passes, shared_by_all,
                      static_cast<float*>(sink_.data()));
  }

  Device device_;
  Buffer sink_, memory_;
};

}  // namespace

std::unique_ptr<MachineProbe> make_probe(int device_index) {
  return std::make_unique<CudaProbe>(device_index);
}

}  // namespace adder::ADDER_CUDA_NS
