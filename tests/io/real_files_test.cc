// Checkpoints made by other programs: torch, safetensors, transformers.
#include <cstring>
#include <map>

#include "io/checkpoint.h"
#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

std::string golden(const std::string& name) {
  return ADDER_SOURCE_DIR "/tests/golden/" + name;
}

// A trained model as published: state-spaces names in a torch zip, written on a GPU.
TEST(RealFiles, ProtMamba) {
  const std::string path = ADDER_FIXTURES_DIR "/protmamba";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const Checkpoint checkpoint = Checkpoint::open(path);
  EXPECT_EQ(checkpoint.dialect(), Dialect::kStateSpaces);
  EXPECT_EQ(checkpoint.config().get_int("d_model"), 128);
  EXPECT_EQ(checkpoint.tensors().size(), 83u);
  const StoredTensor* embedding = checkpoint.find("backbone.embedding.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{40, 128}));
  EXPECT_TRUE(embedding->is_contiguous());
  // The first values as Python's struct module reads them from entry pytorch_model/data/0.
  const auto* values = reinterpret_cast<const float*>(embedding->data);
  EXPECT_EQ(values[0], 0x1.106d3p-6f);
  EXPECT_EQ(values[40 * 128 - 1], 0x1.aaf62ap-2f);
}

// The bytes of a tensor in row-major order, whatever its strides.
std::string gather(const StoredTensor& tensor) {
  const size_t item = dtype_size(tensor.dtype);
  std::string out;
  std::vector<int64_t> index(tensor.shape.size(), 0);
  for (int64_t n = 0; n < tensor.size(); ++n) {
    int64_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * tensor.stride[axis];
    out.append(reinterpret_cast<const char*>(tensor.data) + static_cast<size_t>(at) * item, item);
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < tensor.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return out;
}

// Every tensor of `a`, under the name that `rename` gives it, lies in `b` with the same bits.
template <typename Rename>
void expect_same_tensors(const Checkpoint& a, const Checkpoint& b, size_t at_least, Rename rename) {
  size_t compared = 0;
  for (const auto& [name, tensor] : a.tensors()) {
    const StoredTensor* other = b.find(rename(name));
    if (other == nullptr) continue;
    EXPECT_EQ(tensor.shape, other->shape) << name;
    EXPECT_EQ(tensor.dtype, other->dtype) << name;
    EXPECT_TRUE(gather(tensor) == gather(*other)) << name;
    ++compared;
  }
  EXPECT_GE(compared, at_least);
}

std::string replace(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(golden("mamba1_hf"))) GTEST_SKIP() << "no golden checkpoints";
  }
};

TEST_F(Golden, EveryDialectOpens) {
  const std::map<std::string, std::pair<Dialect, size_t>> kExpected = {
      {"codestral", {Dialect::kCodestral, 21}},
      {"falcon_mamba", {Dialect::kHuggingFace, 23}},
      {"mamba1_hf", {Dialect::kHuggingFace, 22}},
      {"mamba1_hf_f16", {Dialect::kHuggingFace, 26}},
      {"mamba1_hf_sharded_bf16", {Dialect::kHuggingFace, 33}},
      {"mamba1_old_port_bin", {Dialect::kOldPort, 23}},
      {"mamba1_old_port_model_prefix_bin", {Dialect::kOldPort, 23}},
      {"mamba1_state_spaces_bin", {Dialect::kStateSpaces, 23}},
      {"mamba2_hf", {Dialect::kHuggingFace, 20}},
      {"mamba2_hf_groups4", {Dialect::kHuggingFace, 21}},
      {"mamba2_state_spaces_D_has_hdim_no_norm", {Dialect::kStateSpaces, 18}},
      {"mamba2_state_spaces_bin", {Dialect::kStateSpaces, 20}},
  };
  for (const auto& [name, expected] : kExpected) {
    const Checkpoint checkpoint = Checkpoint::open(golden(name));
    EXPECT_EQ(checkpoint.dialect(), expected.first) << name;
    EXPECT_EQ(checkpoint.tensors().size(), expected.second) << name;
    for (const auto& [tensor_name, tensor] : checkpoint.tensors()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % dtype_size(tensor.dtype), 0u)
          << name << " " << tensor_name;
    }
  }
}

TEST_F(Golden, TorchAndSafetensorsHoldTheSameBits) {
  const auto plural = [](const std::string& name) {
    return replace(name, "embedding.", "embeddings.");
  };
  expect_same_tensors(Checkpoint::open(golden("mamba1_state_spaces_bin")),
                      Checkpoint::open(golden("mamba1_hf")), 22, plural);
  expect_same_tensors(Checkpoint::open(golden("mamba2_state_spaces_bin")),
                      Checkpoint::open(golden("mamba2_hf")), 20, plural);
  expect_same_tensors(Checkpoint::open(golden("mamba1_old_port_bin")),
                      Checkpoint::open(golden("mamba1_old_port_model_prefix_bin")), 23,
                      [](const std::string& name) {
                        return replace(replace(name, "backbone.", "model."), "mixer.", "");
                      });
}

TEST_F(Golden, BareInfinityAndTiedHeads) {
  const Checkpoint mamba2 = Checkpoint::open(golden("mamba2_hf"));
  EXPECT_GT((*mamba2.config().get_array("time_step_limit"))[1].as_number(), 1e308);
  const Checkpoint tied = Checkpoint::open(golden("mamba1_state_spaces_bin"));
  EXPECT_EQ(tied.find("lm_head.weight")->data, tied.find("backbone.embedding.weight")->data);
}

TEST_F(Golden, StridedTensors) {
  const Checkpoint checkpoint = Checkpoint::open(golden("mamba2_state_spaces_D_has_hdim_no_norm"));
  size_t strided = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) strided += !tensor.is_contiguous();
  EXPECT_EQ(strided, 2u);  // in_proj of both layers is stored transposed
}

// Seeds of the fuzzer that torch itself wrote; each holds at least one tensor.
TEST(RealFiles, FilesOfTorch) {
  const TempDir dir;
  dir.write("config.json", "{}");
  size_t opened = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ADDER_SOURCE_DIR "/fuzz/corpus/torch_zip")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("torch_")) continue;
    EXPECT_FALSE(Checkpoint::open(dir.write(name, read_file(entry.path()))).tensors().empty())
        << name;
    ++opened;
  }
  EXPECT_GE(opened, 4u);
}

}  // namespace
}  // namespace adder
