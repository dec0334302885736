#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace adder {
namespace {

// A trained model as published: state-spaces names in a torch zip, written on a GPU.
TEST(Checkpoint, OpensTheProtMambaFixture) {
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
  EXPECT_EQ(checkpoint.find("nothing"), nullptr);
}

}  // namespace
}  // namespace adder
