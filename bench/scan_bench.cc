// Convolution and scans of the CPU backend on one thread, in core clocks per unit of work:
//   conv, Mamba-1   clk per token and channel
//   Mamba-2         clk per token and head
// The clock is measured, not read: a chain of dependent multiplications of 3 clocks each (Zen and
// all x86 cores since Nehalem). Times are CPU times, so other processes disturb only the caches.
#include <benchmark/benchmark.h>
#include <time.h>  // clock_gettime is POSIX

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/ops.h"
#include "backends/cpu/scan_ladder.h"

namespace adder {
namespace {

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Best of many runs of about 0.1 ms, most of which no other process interrupts.
double clock_hz() {
  static const double hz = [] {
    double best = 0;
    for (int run = 0; run < 200; ++run) {
      constexpr int kSteps = 100'000;
      const double begin = cpu_seconds();
      uint64_t x = 3;
      for (int i = 0; i < kSteps; ++i) {
        x *= 0x9E3779B97F4A7C15u;
        asm volatile("" : "+r"(x));  // stays in its register
      }
      best = std::max(best, 3.0 * kSteps / (cpu_seconds() - begin));
    }
    return best;
  }();
  return hz;
}

// Reports time * clock / units as "clk".
void report(benchmark::State& state, int64_t units) {
  const double done = static_cast<double>(state.iterations()) * static_cast<double>(units);
  state.counters["clk"] = benchmark::Counter(
      done / clock_hz(), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["GHz"] = clock_hz() * 1e-9;
}

struct Array {
  std::vector<float> values;
  Tensor tensor;

  Array(std::initializer_list<int64_t> dims, float scale, float offset = 0) {
    int64_t size = 1;
    for (const int64_t n : dims) size *= n;
    values.resize(static_cast<size_t>(size));
    std::minstd_rand rng(static_cast<unsigned>(size));
    std::normal_distribution<float> normal(offset, scale);
    for (float& v : values) v = normal(rng);
    tensor = Tensor(values.data(), DType::kF32, dims);
  }
};

struct Fixture {
  CpuContext context{1, isa_from_environment()};
  std::vector<int32_t> seq_start, state_slot{0};
  PackedBatch batch;

  explicit Fixture(int64_t tokens) : seq_start{0, static_cast<int32_t>(tokens)} {
    batch = {seq_start, state_slot};
  }
};

void BM_CausalConv1d(benchmark::State& state) {
  const int64_t tokens = state.range(0), channels = state.range(1), d_conv = state.range(2);
  Fixture f(tokens);
  // x is half of a row that holds z too.
  Array x({tokens, 2 * channels}, 1), weight({d_conv, channels}, 1), bias({channels}, 1);
  Array conv_state({1, d_conv - 1, channels}, 1), out({tokens, channels}, 1);
  const CausalConv1dArgs args{x.tensor.slice(1, 0, channels),
                              weight.tensor,
                              bias.tensor,
                              conv_state.tensor,
                              true,
                              out.tensor,
                              f.batch};
  for (auto _ : state) cpu_causal_conv1d(args, f.context);
  report(state, tokens * channels);
}
BENCHMARK(BM_CausalConv1d)->Args({512, 1536, 4})->Args({512, 5120, 4})->Args({1, 1536, 4});

using Scan = void (*)(const SelectiveScanArgs&, CpuContext&);

void run_selective_scan(benchmark::State& state, Scan scan) {
  const int64_t tokens = state.range(0), d_inner = state.range(1), d_state = state.range(2);
  Fixture f(tokens);
  Array u({tokens, d_inner}, 1), delta({tokens, d_inner}, 1, -4), A({d_state, d_inner}, 1);
  for (float& v : A.values) v = -std::exp(v) * 1.44269504f;
  Array B({tokens, 1, d_state}, 1), C({tokens, 1, d_state}, 1), D({d_inner}, 1);
  Array z({tokens, 2 * d_inner}, 1), bias({d_inner}, 0.1f);
  Array h({1, d_state, d_inner}, 0.1f), out({tokens, d_inner}, 1);
  const SelectiveScanArgs args{u.tensor,
                               delta.tensor,
                               A.tensor,
                               B.tensor,
                               C.tensor,
                               D.tensor,
                               z.tensor.slice(1, d_inner, d_inner),
                               bias.tensor,
                               true,
                               h.tensor,
                               out.tensor,
                               f.batch};
  for (auto _ : state) scan(args, f.context);
  report(state, tokens * d_inner);
}
void BM_SelectiveScan(benchmark::State& state) {
  run_selective_scan(state, &cpu_selective_scan);
}
BENCHMARK(BM_SelectiveScan)
    ->Args({512, 1536, 16})
    ->Args({512, 4096, 16})
    ->Args({512, 1536, 64})
    ->Args({1, 1536, 16});

// The last argument is the rung's number.
void BM_ScanLadder(benchmark::State& state) {
  const ScanRung& rung = scan_ladder()[static_cast<size_t>(state.range(3))];
  run_selective_scan(state, rung.run);
  state.SetLabel(std::string(rung.name));
}
BENCHMARK(BM_ScanLadder)->ArgsProduct({{512}, {1536}, {16}, {0, 1, 2, 3, 4, 5}});

void BM_SsdScan(benchmark::State& state) {
  const int64_t tokens = state.range(0), heads = state.range(1), headdim = state.range(2),
                d_state = state.range(3);
  Fixture f(tokens);
  Array x({tokens, heads, headdim}, 1), dt({tokens, heads}, 1, -4), A({heads}, 1);
  for (float& v : A.values) v = -std::exp(v) * 1.44269504f;
  Array B({tokens, 1, d_state}, 1), C({tokens, 1, d_state}, 1), D({heads}, 1), bias({heads}, 0.1f);
  Array S({1, heads, headdim, d_state}, 0.1f), out({tokens, heads, headdim}, 1);
  SsdScanArgs args;
  args.x = x.tensor;
  args.dt = dt.tensor;
  args.A_log2e = A.tensor;
  args.B = B.tensor;
  args.C = C.tensor;
  args.D = D.tensor;
  args.dt_bias = bias.tensor;
  args.ssm_state = S.tensor;
  args.out = out.tensor;
  args.batch = f.batch;
  for (auto _ : state) cpu_ssd_scan(args, f.context);
  report(state, tokens * heads);
}
BENCHMARK(BM_SsdScan)
    ->Args({512, 24, 64, 128})
    ->Args({512, 80, 64, 128})
    ->Args({512, 24, 64, 64})
    ->Args({1, 24, 64, 128})
    ->Args({4, 24, 64, 128})
    ->Args({8, 24, 64, 128})
    ->Args({9, 24, 64, 128})
    ->Args({16, 24, 64, 128});

}  // namespace
}  // namespace adder

BENCHMARK_MAIN();
