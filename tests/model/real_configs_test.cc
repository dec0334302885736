// Published configs with tensors of the published shapes: sparse files, so gigabytes cost nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backends/registry.h"
#include "io/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"
#include "testing/checkpoint_writer.h"

namespace adder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace adder::testing;

constexpr char kConfigs[] = ADDER_FIXTURES_DIR "/../configs/";

json load_config(const std::string& name) {
  return json::parse(std::ifstream(kConfigs + name))["config"];
}

// A directory with this config and tensors of these shapes, all zero.
void write_sparse(const TempDir& dir, const json& config, const ModelShape& shape,
                  bool codestral = false) {
  dir.write(codestral ? "params.json" : "config.json", config.dump());
  int64_t bytes = 0;
  const std::string header = safetensors_header(
      tensor_shapes(shape),
      [](const std::vector<int64_t>& dims) {
        const int64_t size = TestTensor{"BF16", dims, {}}.size() * 2;
        return std::tuple("BF16", dims, size);
      },
      &bytes);
  const std::string file = dir.write(codestral ? "consolidated.safetensors" : "model.safetensors",
                                     safetensors(header, ""));
  fs::resize_file(file, fs::file_size(file) + static_cast<uintmax_t>(bytes));
}

struct Published {
  const char* file;
  Dialect dialect;
  const char* family;
  ModelShape shape;
};

ModelShape mamba1(int64_t n_layer, int64_t d_model, int64_t vocab_rows, int64_t d_state = 16) {
  ModelShape m;
  m.n_layer = n_layer;
  m.d_model = d_model;
  m.d_inner = 2 * d_model;
  m.d_state = d_state;
  m.dt_rank = d_model / 16;
  m.vocab_rows = vocab_rows;
  return m;
}
ModelShape mamba2(int64_t n_layer, int64_t d_model, int64_t vocab_rows, int64_t n_groups = 1) {
  ModelShape m = mamba1(n_layer, d_model, vocab_rows, 128);
  m.mamba2 = true;
  m.n_heads = m.d_inner / 64;
  m.n_groups = n_groups;
  return m;
}
ModelShape original(ModelShape m) {
  m.embedding = "backbone.embedding.weight";
  return m;
}
ModelShape with_head(ModelShape m) {
  m.lm_head = true;
  return m;
}
ModelShape codestral(ModelShape m) {
  m.prefix = "model.backbone.";
  m.embedding = "model.backbone.embedding.weight";
  m.head = "model.lm_head.weight";
  return with_head(m);
}

std::vector<Published> published() {
  using enum Dialect;
  return {
      {"state-spaces_mamba-130m", kStateSpaces, "mamba", original(mamba1(24, 768, 50280))},
      {"state-spaces_mamba-370m", kStateSpaces, "mamba", original(mamba1(48, 1024, 50280))},
      {"state-spaces_mamba-790m", kStateSpaces, "mamba", original(mamba1(48, 1536, 50280))},
      {"state-spaces_mamba-1.4b", kStateSpaces, "mamba", original(mamba1(48, 2048, 50280))},
      {"state-spaces_mamba-2.8b", kStateSpaces, "mamba", original(mamba1(64, 2560, 50280))},
      {"state-spaces_mamba-2.8b-slimpj", kStateSpaces, "mamba", original(mamba1(64, 2560, 50280))},
      {"state-spaces_mamba2-130m", kStateSpaces, "mamba2", original(mamba2(24, 768, 50288))},
      {"state-spaces_mamba2-370m", kStateSpaces, "mamba2", original(mamba2(48, 1024, 50288))},
      {"state-spaces_mamba2-780m", kStateSpaces, "mamba2", original(mamba2(48, 1536, 50288))},
      {"state-spaces_mamba2-1.3b", kStateSpaces, "mamba2", original(mamba2(48, 2048, 50288))},
      {"state-spaces_mamba2-2.7b", kStateSpaces, "mamba2", original(mamba2(64, 2560, 50288))},
      {"mamba-1.4b-hf", kHuggingFace, "mamba", mamba1(48, 2048, 50280)},
      {"q-bert_mamba-130m_old-port", kOldPort, "mamba", original(mamba1(24, 768, 50280))},
      {"falcon3-mamba-7b-base", kHuggingFace, "falcon_mamba", with_head(mamba1(64, 4096, 65024))},
      {"falcon-mamba-tiny-dev", kHuggingFace, "falcon_mamba", mamba1(4, 128, 65024, 8)},
      {"mamba-codestral-7b_hf", kHuggingFace, "mamba2", with_head(mamba2(64, 4096, 32768, 8))},
      {"mamba-codestral-7b_params", kCodestral, "mamba2", codestral(mamba2(64, 4096, 32768, 8))},
  };
}

std::string test_name(const std::string& file) {
  std::string name = file;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class PublishedConfig : public ::testing::TestWithParam<Published> {};
INSTANTIATE_TEST_SUITE_P(Model, PublishedConfig, ::testing::ValuesIn(published()),
                         [](const auto& test) { return test_name(test.param.file); });

TEST_P(PublishedConfig, IsUnderstood) {
  const Published& p = GetParam();
  const std::string file = std::string(p.file) + ".json";
  if (!fs::exists(kConfigs + file)) GTEST_SKIP() << "missing: " << kConfigs << file;
  const json config = load_config(file);
  const TempDir dir;
  write_sparse(dir, config, p.shape, p.dialect == Dialect::kCodestral);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(dialect_name(checkpoint.dialect()), dialect_name(p.dialect));
  const ModelConfig c = derive_config(checkpoint);
  EXPECT_EQ(c.family, p.family);
  EXPECT_EQ(c.n_layer, p.shape.n_layer);
  EXPECT_EQ(c.d_model, p.shape.d_model);
  EXPECT_EQ(c.d_inner, p.shape.d_inner);
  EXPECT_EQ(c.d_state, p.shape.d_state);
  EXPECT_EQ(c.d_conv, 4);
  EXPECT_EQ(c.vocab_rows, p.shape.vocab_rows);
  EXPECT_EQ(c.vocab_size, config.value("vocab_size", int64_t{0}));
  EXPECT_EQ(c.tied_head, !p.shape.lm_head);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  if (p.shape.mamba2) {
    EXPECT_EQ(c.headdim, 64);
    EXPECT_EQ(c.n_groups, p.shape.n_groups);
    EXPECT_FALSE(c.norm_before_gate);
    EXPECT_EQ(c.dt_min, 0.0f);
    EXPECT_EQ(c.dt_max, std::numeric_limits<float>::infinity());
  } else {
    EXPECT_EQ(c.dt_rank, p.shape.dt_rank);
  }
  // Loading reads the small tensors of every layer; holes of a sparse file are slow to read.
  if (p.shape.d_model > 1024) return;
  const auto backend = make_backend("cpu", 1);
  EXPECT_NO_THROW(Weights::load(checkpoint, c, *backend));  // names and shapes of every tensor
}

struct Hybrid {
  const char* file;
  const char* message;
};
const Hybrid kHybrids[] = {
    {"bamba-9b", "model_type 'bamba': hybrids with attention are not supported"},
    {"falcon-h1-0.5b", "model_type 'falcon_h1'"},
    {"granite-4.0-h-350m-like", "model_type 'granitemoehybrid'"},
    {"granite-4.0-h-micro-like", "model_type 'granitemoehybrid'"},
    {"granite-4.0-h-tiny-like", "field 'num_attention_heads': attention layers"},
    {"jamba-tiny-random", "model_type 'jamba'"},
    {"jamba-v0.1", "model_type 'jamba'"},
    {"nemotron-3-nano-30b-a3b-like", "model_type 'nemotron_h'"},
    {"nemotron-h-8b_defaults", "model_type 'nemotron_h'"},
    {"zamba2-2.7b-instruct", "model_type 'zamba2'"},
    {"state-spaces_mamba2attn-2.7b", "field 'attn_layer_idx': attention layers are not supported"},
    {"mamba3_state-spaces_defaults", "Mamba-3 is not supported"},
};

class HybridConfig : public ::testing::TestWithParam<Hybrid> {};
INSTANTIATE_TEST_SUITE_P(Model, HybridConfig, ::testing::ValuesIn(kHybrids),
                         [](const auto& test) { return test_name(test.param.file); });

// Whether the tensors look like Mamba's (Nemotron, mamba2attn) or not at all (Jamba, Granite).
TEST_P(HybridConfig, IsRefusedAsUnsupported) {
  const std::string file = std::string(GetParam().file) + ".json";
  if (!fs::exists(kConfigs + file)) GTEST_SKIP() << "missing: " << kConfigs << file;
  const std::string config = load_config(file).dump();
  const TestTensors foreign = {{"model.embed_tokens.weight", f32_tensor({2, 2}, {1, 2, 3, 4})}};
  ModelShape shape;
  shape.mamba2 = true;
  for (const TestTensors& tensors : {foreign, random_tensors(shape)}) {
    const std::string image = safetensors_image(tensors);
    const Checkpoint checkpoint = Checkpoint::from_memory(as_bytes(image), config, "model");
    expect_error([&] { derive_config(checkpoint); }, ErrorCode::kUnsupported, GetParam().message);
  }
}

// Every config of the folder is one of the above.
TEST(PublishedConfigs, AllAreCovered) {
  if (!fs::exists(kConfigs)) GTEST_SKIP() << "missing: " << kConfigs;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    const std::string stem = entry.path().stem();
    bool known = false;
    for (const Published& p : published()) known = known || stem == p.file;
    for (const Hybrid& h : kHybrids) known = known || stem == h.file;
    EXPECT_TRUE(known) << entry.path();
  }
}

}  // namespace
}  // namespace adder
