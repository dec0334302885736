// Models and requests at the edges of what there can be, on the XLA backend.

#include <limits>

#include "testing/checkpoint_writer.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

class XlaEdges : public ::testing::TestWithParam<bool> {
 protected:
  static ModelShape shape() {
    ModelShape m;
    m.mamba2 = GetParam();
    return m;
  }
  // One at a time.
  std::unique_ptr<Engine> load(const ModelShape& shape, const TestTensors& tensors,
                               const EngineOptions& options) {
    image_ = safetensors_image(tensors);
    return std::make_unique<Engine>(
        std::make_shared<const Checkpoint>(Checkpoint::from_memory(
            as_bytes(image_), hugging_face_config(shape).dump(), "model in memory")),
        nullptr, options);
  }

 private:
  std::string image_;  // what the checkpoint reads
};
INSTANTIATE_TEST_SUITE_P(Mixer, XlaEdges, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Mamba2" : "Mamba1"; });

// In the prompt and in the decode loop: a broken weight is named.
TEST_P(XlaEdges, ANanWeightIsNamed) {
  const TestTensors good = random_tensors(shape());
  for (const auto& item : good) {
    if (!item.first.ends_with("proj.weight") && item.first != shape().embedding) continue;
    TestTensors spoiled = good;
    set_value(spoiled[item.first], 0, std::numeric_limits<float>::quiet_NaN());
    const auto engine = load(shape(), spoiled, on_xla(1));
    for (int again = 0; again < 2; ++again)
      expect_error(
          [&] {
            generate(*engine, greedy({1, 2, 3}, 4));
          },
          ErrorCode::kBadInput, "tensor '" + item.first + "': expected finite values, got NaN");
  }
}

TEST_P(XlaEdges, AVocabularyOfOne) {
  ModelShape one = shape();
  one.vocab_rows = 1;
  const auto tensors = random_tensors(one);
  const auto engine = load(one, tensors, on_xla(2));
  GenerationRequest request = greedy({0}, 20);
  EXPECT_EQ(generate(*engine, request).tokens, std::vector<int32_t>(20, 0));
  request.sampling = {.temperature = 1, .repeat_penalty = 1.5f};
  request.want_logprobs = true;
  EXPECT_EQ(generate(*engine, request).tokens, std::vector<int32_t>(20, 0));
}

// Prompts of one token, of a block and of what is around it, and batches that grow and shrink in
// the middle of the decode loop and between calls.
TEST_P(XlaEdges, BatchesChange) {
  const std::string model = GetParam() ? "mamba2_hf_groups4" : "mamba1_hf";
  EngineOptions on_ref = on_xla(4);
  on_ref.device = "ref";
  const auto xla = golden_engine(model, on_xla(4)), ref = golden_engine(model, on_ref);
  uint64_t seed = 0;
  for (const auto& lengths : std::vector<std::vector<int64_t>>{
           {1}, {64, 1, 65}, {1, 1, 1, 1}, {63, 200}, {129}, {1, 300, 2}}) {
    std::vector<GenerationRequest> requests;
    for (const int64_t length : lengths) {
      requests.push_back(greedy(random_ids(++seed, length, 90), 3 + 9 * std::ssize(requests)));
    }
    const auto got = generate(*xla, requests), want = generate(*ref, requests);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].tokens, want[i].tokens) << seed;
  }
}

}  // namespace
}  // namespace adder::testing
