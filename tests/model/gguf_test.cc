// GGUF checkpoints: the same model as from the other dialects, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/loaded.h"
#include "testing/gguf_image.h"

namespace adder {
namespace {

using namespace adder::testing;

// d_model and d_inner are whole blocks of Q8_0.
ModelShape gguf_shape(bool mamba2) {
  ModelShape m;
  m.mamba2 = mamba2;
  m.d_model = 32;
  m.d_inner = 64;
  m.n_groups = mamba2 ? 2 : 1;
  m.lm_head = true;
  return m;
}

class GgufModelTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string arch(std::string_view key) const {
    return fmt::format("{}.{}", GetParam() ? "mamba2" : "mamba", key);
  }
  void expect_refused(const GgufModel& model, std::string_view part,
                      ErrorCode code = ErrorCode::kBadInput) const {
    const std::string image = gguf_image(model);
    expect_error([&] { Loaded loaded(Checkpoint::from_gguf(as_bytes(image), "m.gguf")); }, code,
                 part);
  }

  ModelShape shape_ = gguf_shape(GetParam());
  TestTensors tensors_ = random_tensors(shape_);
  GgufModel model_ = gguf_model(shape_, tensors_);
};
INSTANTIATE_TEST_SUITE_P(Mixer, GgufModelTest, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "mamba2" : "mamba1"; });

TEST_P(GgufModelTest, EqualsTheSameModelAsSafetensors) {
  const std::string image = safetensors_image(tensors_), gguf = gguf_image(model_);
  const Loaded want(
      Checkpoint::from_memory(as_bytes(image), hugging_face_config(shape_).dump(), "model"));
  const Loaded got(Checkpoint::from_gguf(as_bytes(gguf), "m.gguf"));
  EXPECT_EQ(got.checkpoint.dialect(), Dialect::kGguf);
  EXPECT_EQ(got.config.family, want.config.family);
  EXPECT_EQ(got.config.n_layer, want.config.n_layer);
  EXPECT_EQ(got.config.in_proj_rows(), want.config.in_proj_rows());
  EXPECT_EQ(got.config.n_groups, want.config.n_groups);
  EXPECT_EQ(got.config.vocab_size, want.config.vocab_size);
  EXPECT_EQ(got.config.gated_norm, want.config.gated_norm);
  EXPECT_FALSE(got.config.tied_head);
  EXPECT_EQ(got.values(got.weights.norm_f), want.values(want.weights.norm_f));
  EXPECT_EQ(got.values(got.weights.lm_head), want.values(want.weights.lm_head));
  for (size_t i = 0; i < want.weights.layers.size(); ++i) {
    const LayerWeights &a = got.weights.layers[i], &b = want.weights.layers[i];
    for (const auto part : {&LayerWeights::norm, &LayerWeights::in_proj, &LayerWeights::conv_weight,
                            &LayerWeights::conv_bias, &LayerWeights::dt_bias, &LayerWeights::D,
                            &LayerWeights::out_proj, &LayerWeights::x_proj, &LayerWeights::dt_proj,
                            &LayerWeights::gated_norm}) {
      ASSERT_EQ(static_cast<bool>(a.*part), static_cast<bool>(b.*part));
      if (a.*part) {
        EXPECT_EQ(got.values(a.*part), want.values(b.*part));
      }
    }
    const auto rates = got.values(a.A_log2e), exact = want.values(b.A_log2e);
    for (size_t j = 0; j < exact.size(); ++j) {
      // A was rounded to float32 before it was scaled: half a unit more than the other way.
      EXPECT_NEAR(rates[j], exact[j], 2e-7 * std::abs(exact[j]));
    }
  }
}

TEST_P(GgufModelTest, SmallTensorsAreRaisedFromAnyType) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    GgufTensor& norm = model_.tensors.at("blk.1.attn_norm.weight");
    norm.dtype = dtype;
    const std::string image = gguf_image(model_);
    const Loaded loaded(Checkpoint::from_gguf(as_bytes(image), "m.gguf"));
    std::vector<std::byte> row(row_bytes(dtype, 32));
    quantize_row(dtype, norm.values, {}, row.data());
    std::vector<float> want(32);
    dequantize_row(dtype, row.data(), want);
    EXPECT_EQ(loaded.values(loaded.weights.layers[1].norm), want) << dtype_name(dtype);
  }
}

TEST_P(GgufModelTest, QuantizedMatricesStayAsTheyAreStored) {
  model_.tensors.at("blk.0.ssm_out.weight").dtype = DType::kQ8_0;
  const std::string image = gguf_image(model_);
  const Loaded loaded(Checkpoint::from_gguf(as_bytes(image), "m.gguf"));
  const Tensor& matrix = loaded.weights.layers[0].out_proj;
  EXPECT_EQ(matrix.dtype, DType::kQ8_0);
  EXPECT_EQ(matrix.data, loaded.checkpoint.find("blk.0.ssm_out.weight")->data);
  EXPECT_EQ(fingerprint(loaded.checkpoint, loaded.config).size(), 64u);
  EXPECT_EQ(find_non_finite(loaded.checkpoint), nullptr);
  EXPECT_EQ(loaded.checkpoint.total_bytes(), [&] {
    uint64_t bytes = 0;
    for (const auto& [name, t] : model_.tensors) {
      bytes += row_bytes(t.dtype, static_cast<int64_t>(t.values.size()));
    }
    return bytes;
  }());
}

TEST_P(GgufModelTest, EveryNumberOfTheMetadataIsCompared) {
  for (const auto& [key, value] : model_.keys) {
    GgufModel wrong = model_;
    wrong.keys[key] = value + 1;
    // Mamba-2's tensors know groups * d_state only.
    const bool state = GetParam() && key.ends_with("state_size");
    expect_refused(wrong, state ? "d_state" : "m.gguf: field '" + key + "'");
  }
}

TEST_P(GgufModelTest, OtherArchitecturesAreRefused) {
  model_.architecture = "llama";
  expect_refused(model_, "'general.architecture': expected mamba or mamba2, got 'llama'",
                 ErrorCode::kUnsupported);
  model_.architecture = GetParam() ? "mamba" : "mamba2";
  expect_refused(model_, "m.gguf: ");
}

TEST_P(GgufModelTest, WrongTensorsAreRefused) {
  GgufModel wrong = model_;
  wrong.tensors.at("blk.0.ssm_a").values[3] = 0.5f;
  expect_refused(wrong, "'blk.0.ssm_a': expected finite values up to 0, got 0.5 at element 3");
  wrong = model_;
  wrong.tensors.erase("blk.1.ssm_in.weight");
  expect_refused(wrong, "tensor 'blk.1.ssm_in.weight' is missing");
  wrong = model_;
  wrong.tensors["blk.0.attn_q.weight"] = wrong.tensors.at("blk.0.ssm_out.weight");
  expect_refused(wrong, "unknown tensor 'blk.0.attn_q.weight'");
  wrong = model_;
  wrong.tensors.erase("token_embd.weight");
  expect_refused(wrong, "tensor 'token_embd.weight' is missing");
}

TEST_P(GgufModelTest, TiesTheHeadThatIsAbsent) {
  model_.tensors.erase("output.weight");
  const std::string image = gguf_image(model_);
  const Loaded loaded(Checkpoint::from_gguf(as_bytes(image), "m.gguf"));
  EXPECT_TRUE(loaded.config.tied_head);
  EXPECT_EQ(loaded.weights.lm_head.data, loaded.weights.embedding.data);
}

TEST(GgufConfig, ReadsEpsilonsLimitsAndTokens) {
  GgufModel model = gguf_model(gguf_shape(true), random_tensors(gguf_shape(true)));
  model.more_keys = [](GgufWriter& w) {
    w.add_f32("mamba2.attention.layer_norm_rms_epsilon", 1e-3f);
    w.add_f32("adder.time_step_min", 0.25f);
    w.add_f32("adder.time_step_max", std::numeric_limits<float>::infinity());
    w.add_bool("adder.norm_before_gate", true);
    w.add_u32("adder.vocab_size", 60);
    w.add_u32("tokenizer.ggml.eos_token_id", 7);
    w.add_u32("tokenizer.ggml.bos_token_id", 5);
    w.add_u32("mamba2.context_length", 1 << 20);
  };
  const std::string image = gguf_image(model);
  const ModelConfig c = derive_config(Checkpoint::from_gguf(as_bytes(image), "m.gguf"));
  EXPECT_EQ(c.norm_eps, 1e-3f);
  EXPECT_EQ(c.dt_min, 0.25f);
  EXPECT_EQ(c.dt_max, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(c.norm_before_gate);
  EXPECT_EQ(c.vocab_size, 60);
  EXPECT_EQ(c.eos_ids, std::vector<int32_t>{7});
  EXPECT_EQ(c.bos_id, 5);
  EXPECT_FALSE(c.trained_length.has_value());  // the key says nothing about training
}

TEST(GgufConfig, FalconMambaIsAFlag) {
  GgufModel model = gguf_model(gguf_shape(false), random_tensors(gguf_shape(false)));
  model.more_keys = [](GgufWriter& w) { w.add_bool("mamba.ssm.dt_b_c_rms", true); };
  const std::string image = gguf_image(model);
  const ModelConfig c = derive_config(Checkpoint::from_gguf(as_bytes(image), "m.gguf"));
  EXPECT_EQ(c.family, "falcon_mamba");
  EXPECT_EQ(c.bcdt_rms_eps, 1e-6f);
}

}  // namespace
}  // namespace adder
