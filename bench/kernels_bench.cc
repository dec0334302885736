// The CPU's matmul on the shapes of mamba-130m and mamba-2.8b.
//
// Prefill is held against OpenBLAS sgemm, decode against the bandwidth of a plain read loop. Both
// are measured in alternation with ours inside one benchmark, because a clock that moves or a
// neighbour on the machine would spoil a comparison of separate runs. Counters:
//   GFLOPS, blas_GFLOPS, ratio    medians over the iterations; ratio = ours / OpenBLAS
//   GBps, read_GBps, of_read      bytes of weights per second; of_read = ours / read loop
// OpenBLAS is loaded at run time: ADDER_OPENBLAS names the library, else libopenblas.so.0.
// ADDER_BENCH_THREADS: threads of both sides (default 1). ADDER_FORCE_ISA as usual.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/ops.h"
#include "backends/cpu/packed_weight.h"
#include "core/buffer.h"
#include "core/quant.h"

namespace adder {
namespace {

int bench_threads() {
  const char* text = std::getenv("ADDER_BENCH_THREADS");
  return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

CpuContext& context() {
  static CpuContext instance(bench_threads(), isa_from_environment());
  return instance;
}

// cblas_sgemm and what is needed to call it without the header.
struct OpenBlas {
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);
  static constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
  Sgemm sgemm = nullptr;

  OpenBlas() {
    const char* path = std::getenv("ADDER_OPENBLAS");
    void* library = dlopen(path != nullptr ? path : "libopenblas.so.0", RTLD_NOW);
    if (library == nullptr) return;
    sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
    const auto set_threads =
        reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
    if (set_threads != nullptr) set_threads(bench_threads());
  }
};

// One thread: its CPU time, which does not count what other processes take. More: wall time.
double now() {
  timespec t{};
  clock_gettime(bench_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const std::function<void()>& body) {
  const double start = now();
  body();
  return now() - start;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Small floats of any type: the exponent bits are those of numbers near 1.
void fill(void* memory, int64_t count, DType type) {
  if (is_quantized(type)) {
    std::vector<float> row(static_cast<size_t>(block_shape(type).elements));
    fill(row.data(), static_cast<int64_t>(row.size()), DType::kF32);
    auto* to = static_cast<std::byte*>(memory);
    quantize_row(type, row, {}, to);
    const size_t block = block_shape(type).bytes;
    for (size_t at = block; at < row_bytes(type, count); at += block)
      std::memcpy(to + at, to, block);
    return;
  }
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    if (type == DType::kF32) {
      static_cast<float*>(memory)[i] = value;
    } else {
      static_cast<uint16_t*>(memory)[i] = type == DType::kBF16
                                              ? f32_to_bf16(value)
                                              : static_cast<uint16_t>(0x3400u | (state >> 23));
    }
  }
}

MatmulArgs matmul_args(Buffer& x, const Tensor& weight, Buffer& out, int64_t rows) {
  MatmulArgs args;
  const int64_t n = weight.dim(0), k = weight.dim(1);
  args.x = Tensor(x.data(), DType::kF32, {rows, k});
  args.weight = weight;
  args.out = Tensor(out.data(), DType::kF32, {rows, n});
  return args;
}

void Prefill(benchmark::State& state, int64_t n, int64_t k, DType type, int64_t rows) {
  static const OpenBlas blas;
  Buffer x = allocate_host(static_cast<size_t>(rows * k * 4));
  Buffer weight = allocate_host(row_bytes(type, n * k));
  Buffer out = allocate_host(static_cast<size_t>(rows * n * 4));
  Buffer weight32 = allocate_host(static_cast<size_t>(n * k * 4));
  fill(x.data(), rows * k, DType::kF32);
  fill(weight.data(), n * k, type);
  fill(weight32.data(), n * k, DType::kF32);
  Buffer packed;
  const MatmulArgs args = matmul_args(
      x, pack_weight(Tensor(weight.data(), type, {n, k}), context().pool, &packed), out, rows);
  const auto m = static_cast<int>(rows), ni = static_cast<int>(n), ki = static_cast<int>(k);

  std::vector<double> ours, theirs;
  for (auto _ : state) {
    ours.push_back(seconds([&] { cpu_matmul(args, context()); }));
    state.SetIterationTime(ours.back());
    if (blas.sgemm == nullptr) continue;
    theirs.push_back(seconds([&] {
      blas.sgemm(OpenBlas::kRowMajor, OpenBlas::kNoTrans, OpenBlas::kTrans, m, ni, ki, 1.0f,
                 static_cast<const float*>(x.data()), ki,
                 static_cast<const float*>(weight32.data()), ki, 0.0f,
                 static_cast<float*>(out.data()), ni);
    }));
  }
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n * k);
  state.counters["GFLOPS"] = flops / median(ours) * 1e-9;
  if (theirs.empty()) return;
  state.counters["blas_GFLOPS"] = flops / median(theirs) * 1e-9;
  state.counters["ratio"] = median(theirs) / median(ours);
}

// Reads `bytes` with every thread, as fast as plain loads go.
uint64_t read_all(const void* memory, int64_t bytes) {
  std::atomic<uint64_t> total{0};
  constexpr int64_t kPiece = 32768;
  context().pool.parallel_for(bytes / kPiece, 8, [&](int64_t begin, int64_t end, int) {
    const auto* p = static_cast<const uint64_t*>(memory) + begin * kPiece / 8;
    const auto* stop = static_cast<const uint64_t*>(memory) + end * kPiece / 8;
    uint64_t sums[8] = {};
    for (; p < stop; p += 8) {
      for (int i = 0; i < 8; ++i) sums[i] += p[i];
    }
    for (int i = 1; i < 8; ++i) sums[0] += sums[i];
    total.fetch_add(sums[0], std::memory_order_relaxed);
  });
  return total.load();
}

// Decode: one row. The weights are walked through copies of 256 MB in all, so that they come from
// memory as they do in a model, and the read loop reads the same bytes.
void Decode(benchmark::State& state, int64_t n, int64_t k, DType type, int64_t rows) {
  Buffer x = allocate_host(static_cast<size_t>(rows * k * 4));
  Buffer out = allocate_host(static_cast<size_t>(rows * n * 4));
  fill(x.data(), rows * k, DType::kF32);
  Buffer strided = allocate_host(row_bytes(type, n * k)), packed;
  fill(strided.data(), n * k, type);
  Tensor weight = pack_weight(Tensor(strided.data(), type, {n, k}), context().pool, &packed);
  const auto bytes = static_cast<int64_t>(packed.size());
  const int64_t copies = std::max<int64_t>(1, (int64_t{256} << 20) / bytes);
  Buffer all = allocate_large(static_cast<size_t>(bytes * copies));
  const auto copy = [&](int64_t i) { return static_cast<std::byte*>(all.data()) + i * bytes; };
  for (int64_t i = 0; i < copies; ++i) std::memcpy(copy(i), packed.data(), packed.size());
  // A quarter of all copies at a time: some milliseconds, longer than a scheduler's slice.
  const int64_t batch = std::max<int64_t>(1, copies / 4);
  int64_t next = 0;
  std::vector<double> ours, reads;
  for (auto _ : state) {
    if (next + batch > copies) next = 0;
    ours.push_back(seconds([&] {
      for (int64_t i = 0; i < batch; ++i) {
        weight.data = copy(next + i);
        cpu_matmul(matmul_args(x, weight, out, rows), context());
      }
    }));
    state.SetIterationTime(ours.back());
    next = next + 2 * batch > copies ? 0 : next + batch;
    reads.push_back(
        seconds([&] { benchmark::DoNotOptimize(read_all(copy(next), batch * bytes)); }));
    next += batch;
  }
  const double total = static_cast<double>(batch * bytes) * 1e-9;
  state.counters["GBps"] = total / median(ours);
  state.counters["read_GBps"] = total / median(reads);
  state.counters["of_read"] = median(reads) / median(ours);
}

void register_all() {
  // in_proj, x_proj, dt_proj, out_proj of mamba-130m, the same of mamba-2.8b, and the head of 130m.
  const struct {
    const char* name;
    int64_t n, k;
  } shapes[] = {
      {"130m_in_proj", 3072, 768},  {"130m_x_proj", 80, 1536},     {"130m_dt_proj", 1536, 48},
      {"130m_out_proj", 768, 1536}, {"2.8b_in_proj", 10240, 2560}, {"2.8b_x_proj", 192, 5120},
      {"2.8b_dt_proj", 5120, 160},  {"2.8b_out_proj", 2560, 5120}, {"130m_head", 50280, 768}};
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    for (const auto& s : shapes) {
      if (s.k % block_shape(type).elements != 0) continue;
      const std::string suffix = std::string("/") + s.name + "/" + std::string(dtype_name(type));
      // A prompt needs the head for its last row only.
      if (s.n < 50000) {
        benchmark::RegisterBenchmark(("prefill" + suffix).c_str(), Prefill, s.n, s.k, type, 512)
            ->UseManualTime()
            ->MinTime(0.3);
      }
      benchmark::RegisterBenchmark(("decode" + suffix).c_str(), Decode, s.n, s.k, type, 1)
          ->UseManualTime()
          ->MinTime(0.3);
    }
  }
}

}  // namespace
}  // namespace adder

int main(int argc, char** argv) {
  adder::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
