#include "backends/cpu/machine_probe.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>

#include "backends/cpu/probe_loops.h"
#include "core/buffer.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace adder {
namespace {

constexpr int64_t kFloatsPerMiB = (1 << 20) / 4;

// Of the first processor, in MiB. sysfs knows what a virtual machine is told about sharing, which
// the C library does not; the usual size where neither knows.
int64_t cache_mib(int level, int name, int64_t otherwise) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", level));
  int64_t kilobytes = 0;
  const int64_t bytes = file >> kilobytes ? kilobytes << 10 : ::sysconf(name);
  return bytes > 0 ? std::max<int64_t>(1, bytes >> 20) : otherwise;
}

double seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

struct PagedLoop {
  std::string_view name;
  ReadLoop loop;
  bool huge;
};
constexpr PagedLoop kMemoryLoops[] = {
    {"one stream, 4 KB pages", ReadLoop::kOneStream, false},
    {"four streams, 4 KB pages", ReadLoop::kFourStreams, false},
    {"prefetched, 4 KB pages", ReadLoop::kPrefetch, false},
    {"one stream, huge pages", ReadLoop::kOneStream, true},
    {"four streams, huge pages", ReadLoop::kFourStreams, true},
    {"prefetched, huge pages", ReadLoop::kPrefetch, true},
};

class CpuProbe final : public MachineProbe {
 public:
  CpuProbe(int threads, Isa isa) : pool_(threads), isa_(isa) {
    l2_mib_ = cache_mib(2, _SC_LEVEL2_CACHE_SIZE, 1);
    l3_mib_ = cache_mib(3, _SC_LEVEL3_CACHE_SIZE, 32);
  }

  std::string_view name() const override { return isa_.name; }
  int threads() const override { return pool_.size(); }

  std::vector<std::string> loops(Limit limit) const override {
    std::vector<std::string> names;
    switch (limit) {
      case Limit::kMemoryRead:
        for (const PagedLoop& loop : kMemoryLoops) names.emplace_back(loop.name);
        break;
      case Limit::kL3Read:
        for (const int64_t mib : l3_sizes()) names.push_back(fmt::format("{} MB a thread", mib));
        break;
      case Limit::kL2Read:
        names.push_back(fmt::format("{} KB a thread", l2_mib_ * 512));
        break;
      default:
        names.emplace_back("registers and L1");
    }
    return names;
  }

  double measure(Limit limit, size_t loop, double at_least) override {
    ADDER_CHECK(loop < loops(limit).size(), "probe: expected a loop below {}, got {}",
                loops(limit).size(), loop);
    const double chunks = kChunks * pool_.size();
    switch (limit) {
      case Limit::kMemoryRead:
        return read_memory(kMemoryLoops[loop], at_least);
      case Limit::kL3Read:
        return read_cached(l3_sizes()[loop] * kFloatsPerMiB, 1, at_least);
      case Limit::kL2Read:
        return read_cached(l2_mib_ * kFloatsPerMiB / 2, 8, at_least);
      case Limit::kFma:
        return chunks * rate(at_least, [&](int) { return probe_fma(isa_, 20000); });
      case Limit::kInt8:
        return chunks * rate(at_least, [&](int) { return probe_int8(isa_, 20000); });
      case Limit::kExp2:
        return chunks * rate(at_least, [&](int) { return probe_exp2(isa_, 50); });
    }
    fail(ErrorCode::kInternal, "probe: unknown limit");
  }

 private:
  // Pieces of work for each thread, so that a thread which was interrupted does not hold up all.
  static constexpr int kChunks = 16;

  // Well beyond the L2 cache; and half of the L3 cache in all, of which a virtual machine may not
  // have as much as it is told.
  std::vector<int64_t> l3_sizes() const {
    return {3 * l2_mib_, std::max(l3_mib_ / (2 * pool_.size()), 4 * l2_mib_)};
  }

  // Units of one piece of work per second: runs work(thread) in loops of kChunks pieces a thread.
  template <typename Work>
  double rate(double at_least, Work&& work) {
    std::atomic<float> sink{0};
    double done = 0;
    int64_t loops = 0;
    const double begin = seconds();
    double now = begin;
    do {
      pool_.parallel_for(int64_t{kChunks} * pool_.size(), 1, [&](int64_t i, int64_t, int thread) {
        const ProbeWork result = work(thread);
        sink.store(result.sink, std::memory_order_relaxed);
        if (i == 0) done = result.done;
      });
      ++loops;
      now = seconds();
    } while (now - begin < at_least);
    return done * static_cast<double>(loops) / (now - begin);
  }

  // Every thread reads memory of its own, `floats` long, `passes` times in a piece of work.
  double read_cached(int64_t floats, int passes, double at_least) {
    const auto bytes = static_cast<size_t>(floats) * sizeof(float);
    own_.resize(static_cast<size_t>(pool_.size()));
    for (Buffer& buffer : own_) {
      if (buffer.size() < bytes) buffer = allocate_touched(bytes, true);
    }
    return kChunks * pool_.size() * rate(at_least, [&](int thread) {
             const auto* p = static_cast<const float*>(own_[static_cast<size_t>(thread)].data());
             float sum = 0;
             for (int i = 0; i < passes; ++i) {
               sum += probe_read(isa_, ReadLoop::kOneStream, p, floats);
             }
             return ProbeWork{static_cast<double>(bytes) * passes, sum};
           });
  }

  double read_memory(const PagedLoop& loop, double at_least) {
    Buffer& buffer = loop.huge ? huge_ : small_;
    if (buffer.size() == 0) {
      // Eight times the cache leaves little of it in the cache from one pass to the next.
      const int64_t mib = std::clamp<int64_t>(8 * l3_mib_, 256, 1024);
      buffer = allocate_touched(static_cast<size_t>(mib) << 20, loop.huge);
    }
    const auto pieces = static_cast<int64_t>(buffer.size() >> 20);
    std::atomic<float> sink{0};
    int64_t passes = 0;
    const double begin = seconds();
    double now = begin;
    do {
      pool_.parallel_for(pieces, 1, [&](int64_t i, int64_t, int) {
        const float* p = static_cast<const float*>(buffer.data()) + i * kFloatsPerMiB;
        sink.store(probe_read(isa_, loop.loop, p, kFloatsPerMiB), std::memory_order_relaxed);
      });
      ++passes;
      now = seconds();
    } while (now - begin < at_least);
    return static_cast<double>(passes) * static_cast<double>(pieces << 20) / (now - begin);
  }

  // Written once, so that every page has memory of its own. Without huge pages in the kernel the
  // advice fails and both kinds are the same.
  static Buffer allocate_touched(size_t bytes, bool huge) {
    Buffer buffer = allocate_host(bytes);
    ::madvise(buffer.data(), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    auto* p = static_cast<float*>(buffer.data());
    std::fill(p, p + bytes / sizeof(float), 1e-3f);
    return buffer;
  }

  ThreadPool pool_;
  Isa isa_;
  int64_t l2_mib_, l3_mib_;
  std::vector<Buffer> own_;  // one per thread
  Buffer small_, huge_;
};

}  // namespace

std::unique_ptr<MachineProbe> make_cpu_probe(int threads) {
  return std::make_unique<CpuProbe>(threads, isa_from_environment());
}

}  // namespace adder
