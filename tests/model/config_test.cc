#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/checkpoint.h"
#include "testing/checkpoint_writer.h"

namespace adder {
namespace {

using nlohmann::json;
using namespace adder::testing;

ModelConfig derive_text(const TestTensors& tensors, const std::string& config) {
  const std::string image = safetensors_image(tensors);
  return derive_config(Checkpoint::from_memory(as_bytes(image), config, "model"));
}
ModelConfig derive(const ModelShape& shape, const json& config) {
  return derive_text(random_tensors(shape), config.dump());
}

ModelShape mamba1() {
  return {};
}
ModelShape mamba2() {
  ModelShape m;
  m.mamba2 = true;
  return m;
}
ModelShape state_spaces(ModelShape m) {
  m.embedding = "backbone.embedding.weight";
  return m;
}

json changed(json config, const std::string& key, const json& value) {
  config[json::json_pointer("/" + key)] = value;
  return config;
}

TEST(Config, SizesComeFromTheTensors) {
  const ModelConfig c = derive(mamba1(), hugging_face_config(mamba1()));
  EXPECT_EQ(c.family, "mamba");
  EXPECT_EQ(c.mixer, MixerKind::kMamba1);
  EXPECT_EQ(c.n_layer, 2);
  EXPECT_EQ(c.d_model, 16);
  EXPECT_EQ(c.d_inner, 32);
  EXPECT_EQ(c.d_state, 8);
  EXPECT_EQ(c.d_conv, 4);
  EXPECT_EQ(c.dt_rank, 2);
  EXPECT_EQ(c.vocab_rows, 64);
  EXPECT_TRUE(c.tied_head);
  ModelShape m = mamba2();
  m.n_groups = 2;
  const ModelConfig two = derive(m, hugging_face_config(m));
  EXPECT_EQ(two.family, "mamba2");
  EXPECT_EQ(two.n_heads, 4);
  EXPECT_EQ(two.headdim, 8);
  EXPECT_EQ(two.n_groups, 2);
  EXPECT_TRUE(two.gated_norm);
  EXPECT_EQ(two.conv_channels(), 32 + 2 * 2 * 8);
  EXPECT_EQ(two.in_proj_rows(), 32 + two.conv_channels() + 4);
}

// An almost empty config is enough where the tensors say everything.
TEST(Config, WorksWithoutTheFieldsThatTensorsKnow) {
  EXPECT_EQ(derive(mamba1(), json::object()).d_state, 8);
  EXPECT_EQ(derive(mamba2(), {{"state_size", 8}}).n_groups, 1);
}

struct Contradiction {
  const char* name;
  bool mamba2;
  const char* key;
  int64_t value;
  const char* message;
};

const Contradiction kContradictions[] = {
    {"HiddenSize", false, "hidden_size", 17,
     "field 'd_model' is 17, but tensor 'backbone.embeddings.weight' says 16"},
    {"DModelBesideIt", false, "d_model", 17, "field 'd_model' is 17, but tensor"},
    {"Layers", false, "num_hidden_layers", 1,
     "field 'num_hidden_layers' is 1, but tensor 'backbone.layers.1.norm.weight' says 2"},
    {"MoreLayers", false, "num_hidden_layers", 3,
     "tensor 'backbone.layers.2.norm.weight' is missing (field 'num_hidden_layers' is 3)"},
    {"NLayer", true, "n_layer", 5, "field 'n_layer' is 5, but tensor"},
    {"StateSize", false, "state_size", 9,
     "field 'd_state' is 9, but tensor 'backbone.layers.0.mixer.A_log' says 8"},
    {"Conv", false, "conv_kernel", 3,
     "field 'd_conv' is 3, but tensor 'backbone.layers.0.mixer.conv1d.weight' says 4"},
    {"Rank", false, "time_step_rank", 5,
     "field 'time_step_rank' is 5, but tensor 'backbone.layers.0.mixer.dt_proj.weight' says 2"},
    {"Inner", false, "intermediate_size", 64,
     "field 'intermediate_size' is 64, but tensor 'backbone.layers.0.mixer.A_log' says 32"},
    {"InnerOfMamba2", true, "intermediate_size", 64,
     "field 'intermediate_size' is 64, but tensor 'backbone.layers.0.mixer.out_proj.weight' says "
     "32"},
    {"Heads", true, "num_heads", 8,
     "field 'num_heads' is 8, but tensor 'backbone.layers.0.mixer.A_log' says 4"},
    {"HeadDim", true, "head_dim", 16, "field 'headdim' is 16, but tensor"},
    {"Groups", true, "n_groups", 2,
     "field 'n_groups' is 2, but tensor 'backbone.layers.0.mixer.conv1d.weight' says 1"},
    {"StateSizeOfMamba2", true, "state_size", 7,
     "field 'd_state' is 7, but tensor 'backbone.layers.0.mixer.conv1d.weight' has 16 rows"},
    {"VocabularyLarger", false, "vocab_size", 65,
     "field 'vocab_size' is 65, but tensor 'backbone.embeddings.weight' has 64 rows"},
    {"VocabularyZero", false, "vocab_size", 0, "field 'vocab_size' is 0, but tensor"},
};

class ConfigContradiction : public ::testing::TestWithParam<Contradiction> {};
INSTANTIATE_TEST_SUITE_P(Config, ConfigContradiction, ::testing::ValuesIn(kContradictions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ConfigContradiction, NamesFieldTensorAndBothValues) {
  const ModelShape shape = GetParam().mamba2 ? mamba2() : mamba1();
  const json config = changed(hugging_face_config(shape), GetParam().key, GetParam().value);
  expect_bad_input([&] { derive(shape, config); }, GetParam().message);
}

TEST(Config, ContradictionsInOtherDialects) {
  const json base = {{"d_model", 16}, {"n_layer", 2}, {"ssm_cfg", json::object()}};
  const auto expect_named = [&](const ModelShape& shape, const std::string& key, const json& value,
                                std::string_view message) {
    const json config = shape.mamba2 ? changed(base, "ssm_cfg/d_state", 8) : base;
    EXPECT_EQ(derive(shape, config).d_state, 8);
    expect_bad_input([&] { derive(shape, changed(config, key, value)); }, message);
  };
  const ModelShape one = state_spaces(mamba1()), two = state_spaces(mamba2());
  expect_named(one, "d_model", 20, "field 'd_model' is 20");
  expect_named(one, "n_layer", 3, "field 'n_layer' is 3");
  expect_named(one, "ssm_cfg/d_state", 4, "field 'd_state' is 4");
  expect_named(one, "ssm_cfg/d_conv", 2, "field 'd_conv' is 2");
  expect_named(one, "ssm_cfg/expand", 3, "field 'expand' is 3 with d_model 16");
  expect_named(one, "ssm_cfg/dt_rank", 9, "field 'ssm_cfg.dt_rank' is 9");
  expect_named(two, "ssm_cfg/headdim", 4, "field 'headdim' is 4");
  expect_named(two, "ssm_cfg/ngroups", 4, "field 'n_groups' is 4");
  // The old port's own keys, and Codestral's.
  expect_named(one, "d_inner", 48, "field 'intermediate_size' is 48");
  expect_named(one, "d_state", 4, "field 'd_state' is 4");
  expect_named(one, "dt_rank", 4, "field 'dt_rank' is 4");
  expect_named(one, "dim", 24, "field 'd_model' is 24");
  expect_bad_input([&] { derive(one, {{"n_layers", 9}}); }, "field 'n_layer' is 9");
}

TEST(Config, AbsurdValuesAreRefused) {
  const std::vector<json> absurd = {-1,
                                    -5,
                                    INT64_MIN,
                                    INT64_MAX,
                                    1e18,
                                    1e30,
                                    -1e300,
                                    16.5,
                                    "sixteen",
                                    true,
                                    json::array({16}),
                                    std::numeric_limits<double>::max(),
                                    json::object()};
  for (const ModelShape& shape : {mamba1(), mamba2()}) {
    const json config = hugging_face_config(shape);
    for (const auto& item : config.items()) {
      const std::string key = item.key();
      if (!item.value().is_number() || key == "eos_token_id") continue;
      for (const json& bad : absurd) {
        SCOPED_TRACE(key + " = " + bad.dump());
        expect_bad_input([&] { derive(shape, changed(config, key, bad)); }, "model");
      }
    }
    json expand = config;
    expand.erase("intermediate_size");
    for (const json& bad : absurd) {
      SCOPED_TRACE("expand = " + bad.dump());
      expect_bad_input([&] { derive(shape, changed(expand, "expand", bad)); }, "model");
    }
  }
}

TEST(Config, NullMeansAbsentAndAutoMeansTheTensors) {
  json config = hugging_face_config(mamba1());
  for (const char* key : {"state_size", "conv_kernel", "vocab_size", "eos_token_id"}) {
    config[key] = nullptr;
  }
  config["time_step_rank"] = "auto";
  const ModelConfig c = derive(mamba1(), config);
  expect_bad_input([&] { derive(mamba1(), changed(config, "time_step_rank", "car")); },
                   "field 'time_step_rank'");
  EXPECT_EQ(c.dt_rank, 2);
  EXPECT_EQ(c.vocab_size, 64);
  EXPECT_TRUE(c.eos_ids.empty());
}

TEST(Config, NormEpsilonMustBeSmall) {
  json config = hugging_face_config(mamba1());
  config["model_type"] = "falcon_mamba";
  for (const char* key : {"layer_norm_epsilon", "mixer_rms_eps"}) {
    EXPECT_NO_THROW(derive(mamba1(), changed(config, key, 1e-3)));
    for (const json& bad : std::vector<json>{-1e-5, 1.0, 1e30, "NaN", "Infinity", "small"}) {
      SCOPED_TRACE(bad.dump());
      expect_bad_input([&] { derive(mamba1(), changed(config, key, bad)); }, key);
    }
  }
}

// falcon-mamba-7b's config says "expand": 16 and means 2: intermediate_size is right.
TEST(Config, FalconMambaMayContradictItselfInExpand) {
  json config = hugging_face_config(mamba1());
  config["model_type"] = "falcon_mamba";
  config["expand"] = 16;
  const ModelConfig c = derive(mamba1(), config);
  EXPECT_EQ(c.family, "falcon_mamba");
  EXPECT_EQ(c.d_inner, 32);
  ASSERT_TRUE(c.bcdt_rms_eps.has_value());
  EXPECT_EQ(*c.bcdt_rms_eps, 1e-6f);
  config["mixer_rms_eps"] = 1e-5;
  EXPECT_EQ(*derive(mamba1(), config).bcdt_rms_eps, 1e-5f);
  config = hugging_face_config(mamba2());
  config["model_type"] = "falcon_mamba";
  expect_bad_input([&] { derive(mamba2(), config); }, "the tensors are Mamba-2's");
}

TEST(Config, TimeStepLimitInEverySpelling) {
  const TestTensors tensors = random_tensors(mamba2());
  const json config = hugging_face_config(mamba2());
  const auto with_limit = [&](const std::string& limit) {
    std::string text = config.dump();
    text.back() = ',';
    return derive_text(tensors, text + "\"time_step_limit\": " + limit + "}");
  };
  for (const char* infinite : {"[0.0, Infinity]", "[0, \"Infinity\"]", "[0.0, \"inf\"]",
                               "[0.0, {\"__float__\": \"Infinity\"}]"}) {
    SCOPED_TRACE(infinite);
    const ModelConfig c = with_limit(infinite);
    EXPECT_EQ(c.dt_min, 0.0f);
    EXPECT_EQ(c.dt_max, std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(with_limit("[0.001, 0.1]").dt_max, 0.1f);
  EXPECT_EQ(with_limit("null").dt_max, std::numeric_limits<float>::infinity());
  for (const char* bad : {"[1]", "[2, 1]", "[-1, 1]", "[NaN, 1]", "[0, NaN]", "[0, \"x\"]", "3",
                          "[0, 1, 2]", "[[0], [1]]"}) {
    SCOPED_TRACE(bad);
    expect_bad_input([&] { with_limit(bad); }, "time_step_limit");
  }
  json state_spaces_config = {{"ssm_cfg", {{"d_state", 8}, {"dt_limit", {0.01, 0.5}}}}};
  EXPECT_EQ(derive(state_spaces(mamba2()), state_spaces_config).dt_min, 0.01f);
}

TEST(Config, EndOfTextMayBeAList) {
  const auto eos = [](const json& value) {
    return derive(mamba1(), changed(hugging_face_config(mamba1()), "eos_token_id", value)).eos_ids;
  };
  EXPECT_EQ(eos(3), (std::vector<int32_t>{3}));
  EXPECT_EQ(eos({5, 2}), (std::vector<int32_t>{5, 2}));
  // An id that the model does not have can never be said, so it does no harm.
  EXPECT_EQ(eos({5, 64, -1, INT64_MAX}), (std::vector<int32_t>{5}));
  EXPECT_TRUE(eos(json::array()).empty());
  expect_bad_input([&] { eos("five"); }, "eos_token_id");
  expect_bad_input([&] { eos({1, "five"}); }, "eos_token_id");
  expect_bad_input([&] { eos(1.5); }, "eos_token_id");
}

TEST(Config, PaddedVocabulary) {
  ModelShape shape = mamba1();
  shape.vocab_rows = 200;
  json config = hugging_face_config(shape);
  config["vocab_size"] = 193;
  EXPECT_EQ(derive(shape, config).vocab_size, 193);
  EXPECT_EQ(derive(shape, config).vocab_rows, 200);
  config["vocab_size"] = 100;  // no padding is that wide
  expect_bad_input([&] { derive(shape, config); }, "field 'vocab_size' is 100");
  config["pad_vocab_size_multiple"] = 128;
  EXPECT_EQ(derive(shape, config).vocab_size, 100);
}

TEST(Config, HeadOfItsOwn) {
  ModelShape shape = mamba1();
  shape.lm_head = true;
  EXPECT_FALSE(derive(shape, hugging_face_config(shape)).tied_head);
  json config = hugging_face_config(mamba1());
  config["tie_word_embeddings"] = false;
  expect_bad_input([&] { derive(mamba1(), config); },
                   "the head is not tied, but tensor 'lm_head.weight' is missing");
  TestTensors tensors = random_tensors(shape);
  tensors["lm_head.weight"] = f32_tensor({16, 64}, std::vector<float>(1024));
  expect_bad_input([&] { derive_text(tensors, hugging_face_config(shape).dump()); },
                   "tensor 'lm_head.weight': expected the shape of 'backbone.embeddings.weight'");
}

TEST(Config, WhatCannotBeRunYetIsSaid) {
  const auto expect_unsupported = [](const ModelShape& shape, const json& config,
                                     std::string_view message) {
    expect_error([&] { derive(shape, config); }, ErrorCode::kUnsupported, message);
  };
  const json hf = hugging_face_config(mamba2());
  expect_unsupported(mamba2(), changed(hf, "attn_layer_idx", {1}), "attention layers");
  expect_unsupported(mamba2(), changed(hf, "d_intermediate", 64), "MLP layers");
  expect_unsupported(mamba2(), changed(hf, "num_attention_heads", 8), "attention layers");
  EXPECT_NO_THROW(derive(mamba2(), changed(hf, "attn_layer_idx", json::array())));
  const json ss = {{"ssm_cfg", {{"d_state", 8}}}, {"rms_norm", false}};
  expect_unsupported(state_spaces(mamba2()), ss, "LayerNorm");
  expect_unsupported(mamba2(), {{"ssm_cfg", {{"layer", "Mamba3"}}}}, "Mamba-3");
}

TEST(Config, NoMambaAtAll) {
  const TestTensors other = {{"model.embed_tokens.weight", f32_tensor({2, 2}, {1, 2, 3, 4})}};
  expect_bad_input([&] { derive_text(other, "{}"); }, "not a Mamba checkpoint");
  TestTensors no_mixer = random_tensors(mamba1());
  std::erase_if(no_mixer,
                [](const auto& item) { return item.first.find("x_proj") != std::string::npos; });
  expect_bad_input([&] { derive_text(no_mixer, "{}"); }, "got neither; not a Mamba checkpoint");
}

}  // namespace
}  // namespace adder
