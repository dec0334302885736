// A broken weight is named when the model first shows it, whichever function is running.
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine_testing.h"
#include "engine/scoring.h"
#include "testing/checkpoint_writer.h"

namespace adder {
namespace {

using namespace adder::testing;

class NonFinite : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Engine> load(const TestTensors& tensors) {
    dir_.write("config.json", hugging_face_config(shape()).dump());
    dir_.write("model.safetensors", safetensors_image(tensors));
    return Engine::load(dir_.path(), {.threads = 1});
  }
  ModelShape shape() const {
    ModelShape m;
    m.mamba2 = GetParam();
    return m;
  }
  template <typename Call>
  void expect_named(Engine& engine, ErrorCode code, const std::string& message, Call&& call) {
    expect_error(call, code, message);
    EXPECT_EQ(engine.states().free_slots(), 1);
  }

  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Mixer, NonFinite, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Mamba2" : "Mamba1"; });

TEST_P(NonFinite, WeightIsNamed) {
  const TestTensors good = random_tensors(shape());
  EXPECT_EQ(generate(*load(good), greedy({1, 2, 3}, 4)).tokens.size(), 4u);
  for (const auto& item : good) {
    if (!item.first.ends_with("proj.weight") && item.first != shape().embedding) continue;
    SCOPED_TRACE(item.first);
    TestTensors spoiled = good;
    // NaN only: an infinite weight may end as a time step of 0 or a logit that never wins.
    set_value(spoiled[item.first], 0, std::numeric_limits<float>::quiet_NaN());
    const auto engine = load(spoiled);
    const std::string message = "tensor '" + item.first + "': expected finite values, got NaN";
    const std::vector<int32_t> ids = {1, 2, 3};
    GenerationRequest request = greedy(ids, 4);
    expect_named(*engine, ErrorCode::kBadInput, message, [&] { generate(*engine, request); });
    request.sampling.temperature = 1;
    expect_named(*engine, ErrorCode::kBadInput, message, [&] { generate(*engine, request); });
    expect_named(*engine, ErrorCode::kBadInput, message, [&] { last_logits(*engine, ids, 1); });
    expect_named(*engine, ErrorCode::kBadInput, message, [&] { next_token_nll(*engine, ids); });
  }
}

// All weights are finite, but the results are not: no tensor is to blame.
TEST_P(NonFinite, OverflowIsReportedAsSuch) {
  TestTensors tensors = random_tensors(shape());
  TestTensor& norm = tensors["backbone.norm_f.weight"];
  for (int64_t i = 0; i < norm.size(); ++i) set_value(norm, i, 3e38f);
  const auto engine = load(tensors);
  const std::vector<int32_t> ids = {1, 2, 3};
  const std::string message = "not finite although its weights are";
  expect_named(*engine, ErrorCode::kInternal, message, [&] { generate(*engine, greedy(ids, 4)); });
  expect_named(*engine, ErrorCode::kInternal, message, [&] { last_logits(*engine, ids, 1); });
  expect_named(*engine, ErrorCode::kInternal, message, [&] { next_token_nll(*engine, ids); });
}

}  // namespace
}  // namespace adder
