#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "model/loaded.h"

namespace adder {
namespace {

using nlohmann::json;
using namespace adder::testing;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ModelShape weights_shape(bool mamba2, bool lm_head = true) {
  ModelShape m;
  m.mamba2 = mamba2;
  m.lm_head = lm_head;
  return m;
}

bool is_big(const std::string& name) {
  return name.ends_with("proj.weight") || name.ends_with("embeddings.weight") ||
         name.ends_with("lm_head.weight");
}

class WeightsTest : public ::testing::TestWithParam<bool> {
 protected:
  ModelShape shape_ = weights_shape(GetParam());
  TestTensors tensors_ = random_tensors(shape_);
};
INSTANTIATE_TEST_SUITE_P(Mixer, WeightsTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Mamba2" : "Mamba1"; });

TEST_P(WeightsTest, AMissingTensorIsNamed) {
  for (const auto& item : tensors_) {
    if (item.first.ends_with("conv1d.bias") || item.first == "lm_head.weight") continue;
    // The gated norm decides what Mamba-2 does; a model without any has none in layer 0.
    if (item.first.ends_with("layers.0.mixer.norm.weight")) continue;
    SCOPED_TRACE(item.first);
    TestTensors fewer = tensors_;
    fewer.erase(item.first);
    // Layers are counted, and the family told, by tensors of their own.
    const bool counts = item.first.ends_with(".norm.weight") || item.first == shape_.embedding ||
                        item.first.ends_with("layers.0.mixer.x_proj.weight") ||
                        item.first.ends_with("layers.0.mixer.dt_bias");
    expect_bad_input([&] { Loaded(shape_, fewer); },
                     counts ? "model" : "tensor '" + item.first + "' is missing");
  }
}

TEST_P(WeightsTest, AnUnknownTensorIsNamed) {
  for (const char* name : {"backbone.layers.0.mixer.extra.weight", "classifier.bias",
                           "backbone.layers.0.mixer.in_proj.weight_scale"}) {
    TestTensors more = tensors_;
    more[name] = f32_tensor({1}, {0});
    expect_bad_input([&] { Loaded(shape_, more); }, fmt::format("unknown tensor '{}'", name));
  }
  TestTensors ignored = tensors_;
  ignored["backbone.rotary_emb.inv_freq"] = f32_tensor({1}, {0});
  EXPECT_NO_THROW(Loaded(shape_, ignored));
}

TEST_P(WeightsTest, OptionalTensorsAreOptional) {
  TestTensors fewer = tensors_;
  std::erase_if(fewer, [](const auto& item) { return item.first.ends_with("conv1d.bias"); });
  const Loaded loaded(shape_, fewer);
  EXPECT_EQ(loaded.weights.layers[0].conv_bias.data, nullptr);
  EXPECT_EQ(loaded.weights.layers[0].in_proj_bias.data, nullptr);
}

// One more or one less on any axis of any tensor.
TEST_P(WeightsTest, AWrongShapeIsNamed) {
  for (const auto& item : tensors_) {
    for (size_t axis = 0; axis < item.second.shape.size(); ++axis) {
      SCOPED_TRACE(fmt::format("{}, axis {}", item.first, axis));
      TestTensors other = tensors_;
      std::vector<int64_t> shape = item.second.shape;
      ++shape[axis];
      const TestTensor sized{"F32", shape, {}};
      other[item.first] = f32_tensor(shape, std::vector<float>(static_cast<size_t>(sized.size())));
      expect_bad_input([&] { Loaded(shape_, other); }, "tensor '");
    }
    TestTensors deeper = tensors_;
    deeper[item.first].shape.push_back(1);
    expect_bad_input([&] { Loaded(shape_, deeper); }, "tensor '" + item.first);
  }
}

TEST_P(WeightsTest, AShapeErrorNamesBothShapes) {
  TestTensors other = tensors_;
  other["backbone.layers.1.mixer.out_proj.weight"].shape = {32, 16};
  expect_bad_input(
      [&] { Loaded(shape_, other); },
      "tensor 'backbone.layers.1.mixer.out_proj.weight': expected shape (16, 32), got (32, 16)");
}

TEST_P(WeightsTest, ANonFiniteValueInASmallTensorIsNamedAtLoad) {
  for (const auto& item : tensors_) {
    if (is_big(item.first)) continue;
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      // exp(-inf) is a decay of 0, and no number that training gives.
      SCOPED_TRACE(fmt::format("{} {}", item.first, bad));
      TestTensors spoiled = tensors_;
      const int64_t at = item.second.size() - 1;
      set_value(spoiled[item.first], at, bad);
      expect_bad_input([&] { Loaded(shape_, spoiled); },
                       fmt::format("tensor '{}': expected finite values, got {} at element {}",
                                   item.first, bad, at));
    }
  }
}

TEST_P(WeightsTest, ANonFiniteValueInABigTensorIsFoundWhenAskedFor) {
  EXPECT_EQ(find_non_finite(Loaded(shape_, tensors_).checkpoint), nullptr);
  for (const auto& item : tensors_) {
    if (!is_big(item.first)) continue;
    TestTensors spoiled = tensors_;
    set_value(spoiled[item.first], 5, kNaN);
    const Loaded loaded(shape_, spoiled);
    const StoredTensor* found = find_non_finite(loaded.checkpoint);
    ASSERT_NE(found, nullptr) << item.first;
    EXPECT_EQ(found->name, item.first);
  }
}

// A_log in 16 bits: raised exactly, and only then exponentiated.
TEST_P(WeightsTest, SmallTensorsOf16BitsAreRaisedExactly) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    TestTensors rounded = tensors_;
    for (auto& item : rounded) item.second = in_16_bits(item.second, dtype);
    const auto raised = [&](const std::string& name) {
      std::vector<float> values;
      const std::string& bytes = rounded.at(name).bytes;
      for (size_t i = 0; i < bytes.size(); i += 2) {
        uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + i, 2);
        values.push_back(dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
      }
      return values;
    };
    const Loaded loaded(shape_, rounded);
    const LayerWeights& w = loaded.weights.layers[1];
    const std::string layer = "backbone.layers.1.mixer.";
    EXPECT_EQ(loaded.values(w.D), raised(layer + "D"));
    EXPECT_EQ(loaded.values(w.conv_bias), raised(layer + "conv1d.bias"));
    EXPECT_EQ(loaded.values(loaded.weights.norm_f), raised("backbone.norm_f.weight"));
    EXPECT_EQ(w.in_proj.dtype, dtype);
    EXPECT_EQ(w.A_log2e.dtype, DType::kF32);
    const auto a_log = raised(layer + "A_log"), a = loaded.values(w.A_log2e);
    const size_t rows = GetParam() ? 1 : 32, cols = a_log.size() / rows;  // transposed to (8, 32)
    for (size_t i = 0; i < a_log.size(); ++i) {
      const double want = -std::exp(static_cast<double>(a_log[i])) * std::numbers::log2e;
      EXPECT_EQ(a[(i % cols) * rows + i / cols], static_cast<float>(want)) << i;
    }
    const auto taps = raised(layer + "conv1d.weight"), conv = loaded.values(w.conv_weight);
    const auto channels = static_cast<size_t>(loaded.config.conv_channels());
    for (size_t i = 0; i < taps.size(); ++i) EXPECT_EQ(conv[i % 4 * channels + i / 4], taps[i]);
  }
}

TEST_P(WeightsTest, OtherDtypesAreRefused) {
  for (const char* name : {"backbone.layers.0.mixer.in_proj.weight", "backbone.norm_f.weight"}) {
    TestTensors other = tensors_;
    other[name].dtype = "I32";
    expect_bad_input(
        [&] { Loaded(shape_, other); },
        fmt::format("tensor '{}': expected dtype F32, F16, BF16 or a block format, got", name));
  }
}

TEST_P(WeightsTest, TheHeadIsTheEmbeddingWhenTied) {
  const ModelShape tied = weights_shape(GetParam(), false);
  const Loaded loaded(tied, random_tensors(tied));
  // The reference backend uses weights where they lie.
  EXPECT_EQ(loaded.weights.lm_head.data, loaded.weights.embedding.data);
  const Loaded untied(shape_, tensors_);
  EXPECT_NE(untied.weights.lm_head.data, untied.weights.embedding.data);
}

TEST_P(WeightsTest, FingerprintsTellModelsApart) {
  const Loaded loaded(shape_, tensors_);
  const std::string print = fingerprint(loaded.checkpoint, loaded.config);
  EXPECT_EQ(print.size(), 64u);
  const Loaded again(shape_, tensors_), other(shape_, random_tensors(shape_, 2));
  EXPECT_EQ(fingerprint(again.checkpoint, again.config), print);
  EXPECT_NE(fingerprint(other.checkpoint, other.config), print);
  // Tensors of up to 4 KB are sampled whole: any bit counts.
  for (const auto& item : tensors_) {
    TestTensors flipped = tensors_;
    flipped[item.first].bytes[1] = static_cast<char>(flipped[item.first].bytes[1] ^ 1);
    const Loaded changed(shape_, flipped);
    EXPECT_NE(fingerprint(changed.checkpoint, changed.config), print) << item.first;
  }
}

}  // namespace
}  // namespace adder
