#include "measure/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include "core/error.h"
#include "core/quant.h"
#include "core/random.h"
#include "kernels/backend.h"

namespace adder {
namespace {

// Weights of a product in all: so many copies of them that none is in a cache when it is used
// again.
// The copies of matrices below a quarter of a megabyte may stay in the L3 cache.
constexpr double kColdBytes = 256e6;
constexpr int64_t kMaxCopies = 1024;
constexpr int64_t kMaxDecodeRows = 16;
// Calls between two waits for the device: enough that the wait counts for nothing.
constexpr int64_t kMaxQueued = 32;

class KernelBench {
 public:
  KernelBench(const ModelConfig& config, const KernelBenchOptions& options)
      : c_(config), o_(options), backend_(make_backend(options.device, options.threads)) {}

  // The rungs of make_scan_ladder() that can do it.
  KernelBenchResult run_scan_ladder(int64_t sequences, int64_t tokens) {
    const auto probe = make_machine_probe(o_.device, o_.threads);
    CeilingSampler ceilings(*probe);
    ceilings.sample();
    for (const LadderRung& rung : make_scan_ladder(o_.device)) {
      const PackedBatch b = equal_sequences(sequences, tokens);
      const SelectiveScanArgs a = selective_scan(b.n_tokens(), b, rung.activations);
      if (rung.supports(a)) {
        measure(
            std::string(rung.name), std::string(rung.description), b.n_tokens(), a,
            [&] { rung.run(a); }, rung.synchronize);
        result_.kernels.back().activations = rung.activations;
        ceilings.sample();
      }
      memory_.clear();
    }
    result_.device = backend_->description();
    result_.rates = ceilings.rates();
    return std::move(result_);
  }

  KernelBenchResult run() {
    const auto probe = make_machine_probe(o_.device, o_.threads);
    CeilingSampler ceilings(*probe);
    ceilings.sample();
    for (const DType type : o_.types) {
      matmuls("in_proj", c_.in_proj_rows(), c_.d_model, type);
      if (c_.mixer == MixerKind::kMamba1) {
        matmuls("x_proj", c_.dt_rank + 2 * c_.d_state, c_.d_inner, type);
        matmuls("dt_proj", c_.d_inner, c_.dt_rank, type);
      }
      matmuls("out_proj", c_.d_model, c_.d_inner, type);
      matmuls("head", c_.vocab_rows, c_.d_model, type);
      ceilings.sample();
    }
    for (const int64_t rows : o_.rows) {
      norm(rows);
      convolution(rows);
      scan(rows);
    }
    ceilings.sample();
    for (const float temperature : {0.0f, 0.6f}) sample(temperature);
    ceilings.sample();
    result_.device = backend_->description();
    result_.rates = ceilings.rates();
    return std::move(result_);
  }

 private:
  // Values of standard deviation `scale` around `center`.
  Tensor array(std::initializer_list<int64_t> shape, float scale, float center = 0,
               DType dtype = DType::kF32) {
    Tensor t(nullptr, dtype, shape);
    std::vector<float> values(static_cast<size_t>(t.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = center + scale * 3.46f * (uniform_at(11, i) - 0.5f);
    }
    std::vector<std::byte> bytes(row_bytes(dtype, t.size()));
    quantize_row(dtype, values, {}, bytes.data());
    memory_.push_back(backend_->allocate(bytes.size()));
    t.data = memory_.back().data();
    backend_->write(t, bytes);
    return t;
  }

  // One sequence of many rows, or many sequences of one.
  PackedBatch batch(int64_t rows) {
    const int64_t sequences = rows <= kMaxDecodeRows ? rows : 1;
    return equal_sequences(sequences, rows / sequences);
  }

  PackedBatch equal_sequences(int64_t sequences, int64_t tokens) {
    starts_.clear();
    slots_.clear();
    for (int64_t i = 0; i <= sequences; ++i) {
      starts_.push_back(static_cast<int32_t>(i * tokens));
      if (i < sequences) slots_.push_back(static_cast<int32_t>(i));
    }
    return {starts_, slots_};
  }

  template <typename Args, typename Call>
  void measure(std::string name, std::string detail, int64_t rows, const Args& args, Call&& call) {
    measure(std::move(name), std::move(detail), rows, args, std::forward<Call>(call),
            [&] { backend_->synchronize(); });
    memory_.clear();
  }

  // synchronize() waits for what the calls have enqueued.
  template <typename Args, typename Call, typename Synchronize>
  void measure(std::string name, std::string detail, int64_t rows, const Args& args, Call&& call,
               Synchronize&& synchronize) {
    if (o_.progress) o_.progress(fmt::format("{} {}, {} rows", name, detail, rows));
    std::vector<double> samples;
    for (int i = 0; i <= o_.repeat; ++i) {
      if (o_.cancel != nullptr && o_.cancel->load()) bad_input("bench: interrupted");
      int64_t calls = 0, more = 1;
      const double begin = seconds_now();
      double now = begin;
      do {
        for (int64_t j = 0; j < more; ++j) call();
        synchronize();
        calls += more;
        more = std::min<int64_t>(2 * more, kMaxQueued);
        now = seconds_now();
      } while (now - begin < o_.seconds);
      if (i > 0) samples.push_back((now - begin) / static_cast<double>(calls));
    }
    result_.kernels.push_back({std::move(name), std::move(detail), DType::kF32, rows,
                               spread_of(std::move(samples)), cost_of(args)});
  }

  void matmuls(const std::string& name, int64_t n, int64_t k, DType type) {
    if (k % block_shape(type).elements != 0) return;  // no model has this
    // The copies are made once for all numbers of rows.
    std::vector<std::byte> host(row_bytes(type, n * k));
    std::vector<float> row(static_cast<size_t>(k));
    const size_t row_size = row_bytes(type, k);
    constexpr int64_t kDistinct = 64;
    for (int64_t i = 0; i < n; ++i) {
      std::byte* to = host.data() + static_cast<size_t>(i) * row_size;
      if (i >= kDistinct) {
        std::copy_n(to - kDistinct * row_size, row_size, to);
        continue;
      }
      for (int64_t j = 0; j < k; ++j) {
        row[static_cast<size_t>(j)] =
            uniform_at(static_cast<uint64_t>(i), static_cast<uint64_t>(j)) - 0.5f;
      }
      quantize_row(type, row, {}, to);
    }
    const auto copies = std::clamp<int64_t>(
        std::llround(kColdBytes / static_cast<double>(host.size())), 1, kMaxCopies);
    std::deque<Buffer> owners;
    std::deque<std::vector<std::byte>> sources;  // where the backend reads host memory itself
    std::vector<Tensor> weights;
    for (int64_t i = 0; i < copies; ++i) {
      Tensor source(host.data(), type, {n, k});
      Tensor imported = backend_->import_weight(source, WeightUse::kMatmul, &owners.emplace_back());
      if (imported.data == source.data) {
        source.data = sources.emplace_back(host).data();
        imported = backend_->import_weight(source, WeightUse::kMatmul, &owners.back());
      }
      weights.push_back(imported);
    }
    size_t next = 0;
    for (const int64_t rows : o_.rows) {
      MatmulArgs args{array({rows, k}, 1), weights[0], {}, array({rows, n}, 0)};
      measure(name, fmt::format("{} x {} {}", n, k, dtype_name(type)), rows, args, [&] {
        args.weight = weights[next++ % weights.size()];
        backend_->matmul(args);
      });
    }
  }

  void norm(int64_t rows) {
    const RmsNormArgs args{array({rows, c_.d_model}, 1), array({rows, c_.d_model}, 1),
                           array({c_.d_model}, 0, 1), c_.norm_eps, array({rows, c_.d_model}, 0)};
    // The residual would grow without end; its size does not change the time.
    measure("rms_norm", fmt::format("{}", c_.d_model), rows, args,
            [&] { backend_->rms_norm(args); });
  }

  void convolution(int64_t rows) {
    const int64_t channels = c_.conv_channels();
    const PackedBatch b = batch(rows);
    const CausalConv1dArgs args{array({rows, c_.in_proj_rows()}, 1).slice(1, 0, channels),
                                array({c_.d_conv, channels}, 0.3f),
                                array({channels}, 0.1f),
                                array({b.n_seqs(), c_.d_conv - 1, channels}, 1),
                                true,
                                array({rows, channels}, 0),
                                b};
    measure("causal_conv1d", fmt::format("{}", channels), rows, args,
            [&] { backend_->causal_conv1d(args); });
  }

  SelectiveScanArgs selective_scan(int64_t rows, const PackedBatch& b,
                                   DType activations = DType::kF32) {
    const int64_t e = c_.d_inner, s = c_.d_state;
    SelectiveScanArgs a;
    a.u = array({rows, e}, 1, 0, activations);
    a.delta = array({rows, e}, 1, -4, activations);  // softplus: 0.02 in the middle
    a.A_log2e = array({s, e}, 1, -8);
    a.B = array({rows, 1, s}, 1, 0, activations);
    a.C = array({rows, 1, s}, 1, 0, activations);
    a.D = array({e}, 0, 1);
    a.z = array({rows, 2 * e}, 1, 0, activations).slice(1, e, e);
    a.delta_bias = array({e}, 0.1f);
    a.ssm_state = array({b.n_seqs(), s, e}, 0.1f);
    a.out = array({rows, e}, 0, 0, activations);
    a.batch = b;
    return a;
  }

  void scan(int64_t rows) {
    const PackedBatch b = batch(rows);
    const int64_t e = c_.d_inner, s = c_.d_state, g = c_.n_groups;
    if (c_.mixer == MixerKind::kMamba1) {
      const SelectiveScanArgs a = selective_scan(rows, b);
      measure("selective_scan", fmt::format("{} x {}", e, s), rows, a,
              [&] { backend_->selective_scan(a); });
      return;
    }
    SsdScanArgs a;
    a.x = array({rows, c_.n_heads, c_.headdim}, 1);
    a.dt = array({rows, c_.n_heads}, 1, -4);
    a.A_log2e = array({c_.n_heads}, 1, -8);
    a.B = array({rows, g, s}, 1);
    a.C = array({rows, g, s}, 1);
    a.D = array({c_.n_heads}, 0, 1);
    a.dt_bias = array({c_.n_heads}, 0.1f);
    a.ssm_state = array({b.n_seqs(), c_.n_heads, c_.headdim, s}, 0.1f);
    a.out = array({rows, c_.n_heads, c_.headdim}, 0);
    a.batch = b;
    measure("ssd_scan", fmt::format("{} x {} x {}", c_.n_heads, c_.headdim, s), rows, a,
            [&] { backend_->ssd_scan(a); });
  }

  void sample(float temperature) {
    SampleParams params;
    params.temperature = temperature;
    params.top_p = 0.95f;
    params.uniform = 0.5f;
    int32_t token = 0;
    const SampleArgs args{array({1, c_.vocab_rows}, 3), c_.vocab_size, std::span(&params, 1),
                          std::span(&token, 1)};
    measure("sample", fmt::format("{}, temperature {}", c_.vocab_size, temperature), 1, args,
            [&] { backend_->sample(args); });
  }

  const ModelConfig& c_;
  const KernelBenchOptions& o_;
  std::unique_ptr<Backend> backend_;
  std::deque<Buffer> memory_;  // of the arrays of one kernel
  std::vector<int32_t> starts_, slots_;
  KernelBenchResult result_;
};

}  // namespace

KernelBenchResult bench_kernels(const ModelConfig& config, const KernelBenchOptions& options) {
  return KernelBench(config, options).run();
}

KernelBenchResult bench_scan_ladder(const ModelConfig& config, int64_t sequences, int64_t tokens,
                                    const KernelBenchOptions& options) {
  ADDER_CHECK(config.mixer == MixerKind::kMamba1,
              "bench scan: expected a Mamba-1 model, whose scan has a ladder, got {}",
              config.family);
  KernelBenchOptions alone = options;
  alone.threads = 1;  // a rung of the CPU's ladder is a loop on one
  return KernelBench(config, alone).run_scan_ladder(sequences, tokens);
}

}  // namespace adder
