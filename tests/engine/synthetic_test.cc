// Synthetic models load and run like those from files, with the sizes of the published ones.
#include "engine/synthetic.h"

#include <cmath>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/quant.h"
#include "engine/engine_testing.h"

namespace adder::testing {
namespace {

// One of each kind of shape, small. d_model 256 has whole Q4_K blocks, 48 has rows that do not fit
// blocks of 32, and 272 rows of 17 for dt_proj.
std::vector<SyntheticShape> tiny_shapes() {
  return {{"tiny mamba", MixerKind::kMamba1, 2, 256, 16, 96},
          {"tiny mamba, odd sizes", MixerKind::kMamba1, 2, 272, 16, 101},
          {"tiny mamba2", MixerKind::kMamba2, 3, 64, 128, 96},
          {"tiny falcon", MixerKind::kMamba1, 2, 64, 16, 96, true}};
}

std::vector<float> logits_of(std::shared_ptr<const Checkpoint> checkpoint,
                             const std::string& device) {
  EngineOptions options;
  options.device = device;
  options.threads = 2;
  Engine engine(std::move(checkpoint), nullptr, options);
  Conversation conversation;
  GenerationRequest request = greedy(random_ids(3, 20, 90), 0);
  request.conversation = &conversation;
  generate(engine, request);
  return conversation.logits;
}

constexpr DType kRunnable[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                               DType::kQ8_0, DType::kQ4_0, DType::kQ4_K};

TEST(Synthetic, EveryKindOfShapeRunsAndIsNotDegenerate) {
  for (const SyntheticShape& shape : tiny_shapes()) {
    for (const DType type : kRunnable) {
      SCOPED_TRACE(shape.name + " " + std::string(dtype_name(type)));
      const auto checkpoint = std::make_shared<Checkpoint>(make_synthetic(shape, type));
      const ModelConfig config = derive_config(*checkpoint);
      EXPECT_EQ(config.n_layer, shape.n_layer);
      EXPECT_EQ(config.d_model, shape.d_model);
      EXPECT_EQ(config.vocab_rows, shape.vocab);
      EXPECT_EQ(config.mixer, shape.mixer);
      EXPECT_EQ(config.tied_head, !shape.falcon);
      EXPECT_EQ(config.bcdt_rms_eps.has_value(), shape.falcon);
      const std::vector<float> logits = logits_of(checkpoint, "cpu");
      ASSERT_EQ(static_cast<int64_t>(logits.size()), shape.vocab);
      const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
      EXPECT_TRUE(std::isfinite(*low) && std::isfinite(*high));
      // About 100 values of standard deviation 3: 2.5 of them to each side.
      EXPECT_GT(*high - *low, 8.0f);
      EXPECT_LT(*high - *low, 30.0f);
    }
  }
}

TEST(Synthetic, SharedMemoryIsTheSameModelInLess) {
  for (const SyntheticShape& shape : tiny_shapes()) {
    SCOPED_TRACE(shape.name);
    const auto own = std::make_shared<Checkpoint>(make_synthetic(shape, DType::kBF16));
    const auto shared =
        std::make_shared<Checkpoint>(make_synthetic(shape, DType::kBF16, SyntheticMemory::kShared));
    EXPECT_EQ(own->total_bytes(), synthetic_bytes(shape, DType::kBF16));
    EXPECT_LT(shared->total_bytes(), own->total_bytes());
    EXPECT_EQ(logits_of(own, "cpu"), logits_of(shared, "cpu"));
  }
}

TEST(Synthetic, TypesFollowTheQuantizationPolicy) {
  const SyntheticShape m1 = tiny_shapes()[0], odd = tiny_shapes()[1], m2 = tiny_shapes()[2];
  const auto type_of = [](const Checkpoint& c, const std::string& name) {
    const StoredTensor* t = c.find(name);
    return t == nullptr ? std::string("missing") : std::string(dtype_name(t->dtype));
  };
  const std::string layer = "backbone.layers.1.", mixer = layer + "mixer.";
  for (const std::string& name : synthetic_type_names()) {
    SCOPED_TRACE(name);
    const DType type = parse_weight_type(name);
    const std::string wanted(dtype_name(type));
    const Checkpoint a = make_synthetic(m1, type);
    for (const char* big : {"in_proj.weight", "out_proj.weight"}) {
      EXPECT_EQ(type_of(a, mixer + big), wanted) << big;
    }
    EXPECT_EQ(type_of(a, "backbone.embeddings.weight"), wanted);
    for (const char* small : {"conv1d.weight", "conv1d.bias", "dt_proj.bias", "A_log", "D"}) {
      EXPECT_EQ(type_of(a, mixer + small), "F32") << small;
    }
    EXPECT_EQ(type_of(a, layer + "norm.weight"), "F32");
    // dt_proj has rows of 16: no block fits.
    EXPECT_EQ(type_of(a, mixer + "x_proj.weight"), is_quantized(type) ? "Q8_0" : wanted);
    EXPECT_EQ(type_of(a, mixer + "dt_proj.weight"), is_quantized(type) ? "F16" : wanted);
    // Rows of 272 elements: no block of 32 or 256, but 17 of 16; q4_k then means Q8_0. Of 544: 17
    // blocks of 32.
    const Checkpoint b = make_synthetic(odd, type);
    EXPECT_EQ(type_of(b, mixer + "in_proj.weight"), is_quantized(type) ? "F16" : wanted);
    EXPECT_EQ(type_of(b, mixer + "out_proj.weight"), type == DType::kQ4_K ? "Q8_0" : wanted);
    const Checkpoint c = make_synthetic(m2, type);
    for (const char* small : {"dt_bias", "A_log", "D", "norm.weight"}) {
      EXPECT_EQ(type_of(c, mixer + small), "F32") << small;
    }
    const bool apart = type == DType::kQ4_0 || type == DType::kQ4_K;
    EXPECT_EQ(type_of(c, mixer + "in_proj_dt.weight"), apart ? "Q8_0" : "missing");
  }
}

TEST(Synthetic, PublishedShapesHaveThePublishedNumbersOfParameters) {
  const std::map<std::string, double> millions = {
      {"mamba-130m", 129.1},   {"mamba-370m", 371.5},      {"mamba-790m", 793.2},
      {"mamba-1.4b", 1372.2},  {"mamba-2.8b", 2768.3},     {"mamba2-130m", 128.9},
      {"mamba2-370m", 367.8},  {"mamba2-780m", 780.0},     {"mamba2-1.3b", 1343.0},
      {"mamba2-2.7b", 2702.6}, {"falcon-mamba-7b", 7272.7}};
  EXPECT_EQ(synthetic_names().size(), millions.size());
  for (const std::string& name : synthetic_names()) {
    const double bytes = static_cast<double>(synthetic_bytes(synthetic_shape(name), DType::kF32));
    ASSERT_TRUE(millions.contains(name)) << name;
    EXPECT_NEAR(bytes / 4e6, millions.at(name), millions.at(name) * 0.002) << name;
  }
}

TEST(Synthetic, WeightsHaveTheWantedSpread) {
  const SyntheticShape shape = tiny_shapes()[0];
  for (const std::string& name : synthetic_type_names()) {
    const Checkpoint c = make_synthetic(shape, parse_weight_type(name));
    const StoredTensor& t = *c.find("backbone.layers.0.mixer.in_proj.weight");
    std::vector<float> row(static_cast<size_t>(t.size()));
    dequantize_row(t.dtype, t.data, row);
    double sum = 0, squares = 0;
    for (const float v : row) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const auto n = static_cast<double>(row.size());
    // 262,144 values of standard deviation 1/16: the estimate is good to 0.2 %, 4 bits to some %.
    EXPECT_NEAR(std::sqrt(squares / n) * 16, 1.0, 0.05) << name;
    EXPECT_NEAR(sum / n * 16, 0.0, 0.02) << name;
  }
}

TEST(Synthetic, UnknownNamesAreRefusedWithTheChoice) {
  for (const auto& refuse : std::vector<std::function<void()>>{[] { synthetic_shape("mamba-3b"); },
                                                               [] { parse_weight_type("q3_k"); }}) {
    try {
      refuse();
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_TRUE(message.find("mamba-2.8b") != std::string::npos ||
                  message.find("q4_k") != std::string::npos)
          << message;
    }
  }
}

}  // namespace
}  // namespace adder::testing
