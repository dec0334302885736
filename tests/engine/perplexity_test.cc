// What quantization costs trained models, as a user would have them: `adder quantize --type T`.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "core/quant.h"
#include "engine/engine_testing.h"
#include "engine/model_source.h"
#include "engine/quantize.h"
#include "engine/scoring.h"
#include "io/tensor_values.h"
#include "testing/checkpoint_writer.h"

namespace adder {
namespace {

using namespace adder::testing;

struct Gate {
  DType type;
  double cost;  // of perplexity at most, relative to the source's own weights
};

double perplexity(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<int32_t>& ids,
                  const char* device) {
  Engine engine(std::move(checkpoint), nullptr, {.device = device, .threads = 2, .logit_rows = 16});
  const auto nll = next_token_nll(engine, ids);
  return std::exp(std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size()));
}

void expect_gates(const std::shared_ptr<const Checkpoint>& source, const std::vector<int32_t>& ids,
                  std::initializer_list<Gate> gates) {
  const TempDir dir;
  const double exact = perplexity(source, ids, "cpu");
  for (const auto& [type, gate] : gates) {
    quantize_model(*source, dir.path("m.gguf"), {.type = type, .threads = 2});
    const double got = perplexity(
        std::make_shared<const Checkpoint>(Checkpoint::open(dir.path("m.gguf"))), ids, "cpu");
    const double cost = got / exact - 1;
    fmt::print("{}: perplexity {:.5f} after {:.5f}, {:+.3f} %\n", dtype_name(type), got, exact,
               100 * cost);
    EXPECT_LT(std::abs(cost), gate) << dtype_name(type);
    EXPECT_NE(cost, 0) << "nothing was quantized";
  }
}

std::vector<int32_t> persuasion(size_t bytes) {
  const std::string path = ADDER_FIXTURES_DIR "/text/austen_persuasion.txt";
  const std::string text = std::filesystem::exists(path) ? read_file(path) : "";
  std::vector<int32_t> ids;
  for (const char c : text.substr(0, bytes)) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Perplexity, DemoModel) {
  const auto ids = persuasion(4000);  // held out of its training
  if (ids.empty()) GTEST_SKIP() << "missing: " ADDER_FIXTURES_DIR "/text/austen_persuasion.txt";
  // 0.5 % and 3 % are the project's bars. d_model is 192, so q4_k means Q8_0 here; the test below
  // has the real Q4_K. Q4_0 cost 1.0 % on this text.
  expect_gates(std::make_shared<const Checkpoint>(open_model("")), ids,
               {{DType::kQ8_0, 0.005}, {DType::kQ4_K, 0.03}, {DType::kQ4_0, 0.02}});
}

TEST(Perplexity, ProtMamba) {
  const std::string folder = ADDER_FIXTURES_DIR "/protmamba";
  if (!std::filesystem::exists(folder + "/pytorch_model.bin"))
    GTEST_SKIP() << "missing: " << folder << "/pytorch_model.bin";
  const auto golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  // A model of 0.9 million parameters that knows one protein by heart, at a perplexity of 1.1: 4
  // bits make it forget (docs/numerics.md), so there is no bar for Q4_0. d_model is 128: q4_k means
  // Q8_0.
  expect_gates(std::make_shared<const Checkpoint>(Checkpoint::open(folder)),
               ids_of(golden["greedy_ids"]), {{DType::kQ8_0, 0.005}, {DType::kQ4_K, 0.03}});
}

// Q4_K on a trained model all the same: its rounding of the weights alone, with blocks that run on
// from row to row. The dt rows stay as they are, where the policy gives them 8 bits.
TEST(Perplexity, Q4KWeightsOfTheDemoModel) {
  const auto ids = persuasion(20000);
  if (ids.empty()) GTEST_SKIP() << "missing: " ADDER_FIXTURES_DIR "/text/austen_persuasion.txt";
  const auto source = std::make_shared<const Checkpoint>(open_model(""));
  TestTensors tensors;
  int64_t rounded = 0;
  for (const auto& [name, t] : source->tensors()) {
    std::vector<float> values(static_cast<size_t>(t.size()));
    read_values(t, 0, values);
    if (t.shape.size() == 2) {
      const int64_t rows = name.ends_with("in_proj.weight") ? t.shape[0] - 6 : t.shape[0];
      const auto n = static_cast<size_t>(rows * t.shape[1]);
      ASSERT_EQ(n % 256, 0u) << name;
      std::vector<std::byte> blocks(row_bytes(DType::kQ4_K, static_cast<int64_t>(n)));
      quantize_row(DType::kQ4_K, {values.data(), n}, {}, blocks.data());
      dequantize_row(DType::kQ4_K, blocks.data(), {values.data(), n});
      ++rounded;
    }
    tensors[name] = f32_tensor(t.shape, values);
  }
  EXPECT_EQ(rounded, 13);  // the embedding, and 2 per layer
  const std::string image = safetensors_image(tensors);
  const double exact = perplexity(source, ids, "cpu");
  const double got = perplexity(std::make_shared<const Checkpoint>(Checkpoint::from_memory(
                                    as_bytes(image), source->config().dump(), "rounded demo")),
                                ids, "cpu");
  fmt::print("Q4_K weights: perplexity {:.5f} after {:.5f}, {:+.3f} %\n", got, exact,
             100 * (got / exact - 1));
  EXPECT_LT(got / exact - 1, 0.03);
  EXPECT_GT(got, exact);
}

}  // namespace
}  // namespace adder
