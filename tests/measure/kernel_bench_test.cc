// Single operations are measured at a model's shapes.
#include "measure/kernel_bench.h"

#include "core/error.h"
#include "engine/engine_testing.h"
#include "engine/synthetic.h"

namespace adder::testing {
namespace {

TEST(KernelBench, EveryOperationOfBothMixersIsMeasured) {
  for (const MixerKind mixer : {MixerKind::kMamba1, MixerKind::kMamba2}) {
    const SyntheticShape shape = {"tiny", mixer, 1, 64, mixer == MixerKind::kMamba1 ? 16 : 128, 96};
    const ModelConfig config = derive_config(make_synthetic(shape, DType::kBF16));
    KernelBenchOptions options;
    options.threads = 2;
    options.types = {DType::kBF16, DType::kQ8_0};
    options.rows = {1, 3, 20};
    options.repeat = 1;
    options.seconds = 0;
    const KernelBenchResult r = bench_kernels(config, options);
    // 64 and 128 columns are whole blocks of 32; dt_proj's 4 are not.
    const size_t products = mixer == MixerKind::kMamba1 ? 4 + 5 : 3 + 3;
    EXPECT_EQ(r.kernels.size(), products * 3 + 3 * 3 + 2);
    for (const KernelResult& k : r.kernels) {
      SCOPED_TRACE(k.name + " " + k.detail);
      EXPECT_GT(k.seconds.min, 0);
      EXPECT_LE(k.seconds.min, k.seconds.max);
      EXPECT_GT(bound_of(k.cost, r.rates).seconds, 0);
    }
  }
}

TEST(KernelBench, EveryRungOfTheScanLadderIsMeasured) {
  KernelBenchOptions options;
  options.repeat = 2;
  options.seconds = 0;
  const auto config_of = [](MixerKind mixer, int64_t d_state) {
    return derive_config(make_synthetic({"tiny", mixer, 1, 64, d_state, 96}, DType::kBF16));
  };
  const KernelBenchResult r = bench_scan_ladder(config_of(MixerKind::kMamba1, 16), 2, 35, options);
  ASSERT_EQ(r.kernels.size(), make_scan_ladder("cpu").size());
  EXPECT_EQ(r.kernels.front().name, "naive");
  for (const KernelResult& k : r.kernels) {
    SCOPED_TRACE(k.name);
    EXPECT_EQ(k.rows, 70);
    EXPECT_FALSE(k.detail.empty());
    EXPECT_GT(k.seconds.min, 0);
    EXPECT_EQ(k.cost.exp2, r.kernels.front().cost.exp2);  // the same work
    EXPECT_GT(bound_of(k.cost, r.rates).seconds, 0);
  }
  EXPECT_THROW(bench_scan_ladder(config_of(MixerKind::kMamba2, 128), 1, 70, options), Error);
}

}  // namespace
}  // namespace adder::testing
