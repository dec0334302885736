// What is measured is what was asked for; how fast it is, is no matter of a test.
#include "measure/model_bench.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "engine/engine_testing.h"
#include "engine/model_source.h"
#include "engine/synthetic.h"

namespace adder::testing {
namespace {

const SyntheticShape kMamba = {"tiny mamba", MixerKind::kMamba1, 2, 64, 16, 96};
const SyntheticShape kFalcon = {"tiny falcon", MixerKind::kMamba1, 2, 64, 16, 96, true};

std::unique_ptr<Engine> tiny_engine(const SyntheticShape& shape, std::vector<int32_t> batches,
                                    EngineOptions options = {}) {
  options.threads = 2;
  return std::make_unique<Engine>(std::make_shared<Checkpoint>(make_synthetic(shape, DType::kBF16)),
                                  nullptr, bench_engine_options(options, batches));
}

void expect_spread(const Spread& s) {
  EXPECT_GT(s.min, 0);
  EXPECT_LE(s.min, s.median);
  EXPECT_LE(s.median, s.max);
  EXPECT_TRUE(std::isfinite(s.max));
}

TEST(ModelBench, MeasuresEveryBatchInTurn) {
  ModelBenchOptions options;
  options.prompt = 70;
  options.gen = 3;
  options.batches = {1, 5};
  options.repeat = 2;
  options.threads = 1;
  std::map<std::string, int> lines;
  options.progress = [&](const std::string& line) { ++lines[line]; };
  const auto engine = tiny_engine(kMamba, options.batches);
  const ModelBenchResult r = bench_model(*engine, options);
  EXPECT_EQ(r.prefill.tokens, 70);
  expect_spread(r.prefill.seconds);
  ASSERT_EQ(r.decode.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(r.decode[i].batch, options.batches[i]);
    EXPECT_EQ(r.decode[i].tokens, 3);
    expect_spread(r.decode[i].seconds);
  }
  for (const Limit limit : kLimits) EXPECT_GT(r.rates[limit], 1e6) << limit_name(limit);
  EXPECT_GT(r.peak_resident_bytes, 1u << 20);
  EXPECT_EQ(lines.size(), 9u);  // warm-up and two repeats of three measurements
  for (const char* line :
       {"warm-up: prompt", "repeat 1 of 2: 1 sequence", "repeat 2 of 2: 5 sequences"}) {
    EXPECT_EQ(lines[line], 1) << line;
  }
  // Every slot was given back.
  EXPECT_EQ(engine->states().free_slots(), 6);
}

TEST(ModelBench, TheWorkOfAStepIsCountedFromTheTensors) {
  // d_model 64, d_inner 128, dt_rank 4, d_state 16.
  const double matrices = 256 * 64 + 36 * 128 + 128 * 4 + 64 * 128;
  const double small = 4.0 * (64 + 128 * 4 + 128 + 128 + 128 * 16 + 128);
  const double embedding = 96 * 64, norm = 4.0 * 64;
  for (const SyntheticShape& shape : {kMamba, kFalcon}) {
    const auto checkpoint = make_synthetic(shape, DType::kBF16);
    const ModelConfig config = derive_config(checkpoint);
    const ModelCost cost = model_cost(checkpoint, config);
    EXPECT_EQ(cost.layer_flops, 2 * 2 * matrices);
    EXPECT_EQ(cost.head_flops, 2 * embedding);
    // The head is read once, whether it is the embedding or beside it.
    EXPECT_EQ(cost.weight_bytes, 2 * (2 * matrices + small) + 2 * embedding + norm);
    EXPECT_EQ(cost.state_bytes, 2.0 * 2 * 4 * (3 * 128 + 128 * 16));
  }
}

TEST(ModelBench, TheWorkOfAStepIsThatOfTheSameModelInGguf) {
  for (const auto& [folder, gguf] :
       {std::pair("mamba1_hf", "gguf_mamba1"), std::pair("mamba2_hf", "gguf_mamba2")}) {
    const Checkpoint one = open_model(golden_path(folder));
    const Checkpoint other = open_model(golden_path(gguf) + "/model.gguf");
    const double flops = model_cost(one, derive_config(one)).layer_flops;
    EXPECT_GT(flops, 0) << folder;
    EXPECT_EQ(model_cost(other, derive_config(other)).layer_flops, flops) << folder;
  }
}

TEST(ModelBench, BadOptionsAndInterruptionsAreErrors) {
  const auto engine = tiny_engine(kMamba, {1});
  ModelBenchOptions options;
  options.prompt = options.gen = 2;
  options.repeat = 1;
  for (int64_t ModelBenchOptions::*field : {&ModelBenchOptions::prompt, &ModelBenchOptions::gen}) {
    ModelBenchOptions bad = options;
    bad.*field = 0;
    EXPECT_THROW(bench_model(*engine, bad), Error);
  }
  ModelBenchOptions empty = options;
  empty.batches.clear();
  EXPECT_THROW(bench_model(*engine, empty), Error);
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_THROW(bench_model(*engine, options), Error);
  EXPECT_EQ(engine->states().free_slots(), 2);
}

}  // namespace
}  // namespace adder::testing
