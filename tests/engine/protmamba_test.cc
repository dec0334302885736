// A trained model of somebody else's, with values computed in float64 (shared/fixtures/README.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "engine/engine_testing.h"
#include "engine/logprobs.h"
#include "engine/scoring.h"
#include "engine/state_file.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

class ProtMamba : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"pytorch_model.bin", "config.json", "golden.json"}) {
      const std::string file = std::string(kFolder) + "/" + name;
      if (!std::filesystem::exists(file)) GTEST_SKIP() << "missing: " << file;
    }
    golden_ = nlohmann::json::parse(std::ifstream(std::string(kFolder) + "/golden.json"));
    ids_ = ids_of(golden_["greedy_ids"]);
    engine_ = Engine::load(kFolder, {.threads = 2, .slots = 2});
  }

  std::vector<int32_t> first(size_t n) const { return {ids_.begin(), ids_.begin() + n}; }

  static constexpr char kFolder[] = ADDER_FIXTURES_DIR "/protmamba";
  nlohmann::json golden_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Engine> engine_;
};

// 8 layers of float32: the bar that the fixture states for its values.
constexpr Tolerance kPublished{2e-4, 0};

TEST_F(ProtMamba, GreedyIdsAreTheSame) {
  const auto result = generate(*engine_, greedy({0}, 60));
  EXPECT_EQ(result.tokens, std::vector<int32_t>(ids_.begin() + 1, ids_.end()));
}

TEST_F(ProtMamba, LogitsAreTheSame) {
  EXPECT_TRUE(close(last_logits(*engine_, first(1), 1),
                    golden_["logits_row0"].get<std::vector<double>>(), kPublished));
  EXPECT_TRUE(close(last_logits(*engine_, first(16), 1),
                    golden_["logits_first16_last_row"].get<std::vector<double>>(), kPublished));
}

// The published values are normalised over all 40 rows, padding included; ours over the 33 ids that
// can be said. Both come from the same logits.
TEST_F(ProtMamba, LogLikelihoodsAreTheSame) {
  const auto want = golden_["nll_next"].get<std::vector<double>>();
  const auto logits = last_logits(*engine_, ids_, 61);
  const auto ours = next_token_nll(*engine_, ids_);
  ASSERT_EQ(ours.size(), 60u);
  std::vector<double> over_all_rows;
  for (size_t i = 0; i < 60; ++i) {
    const auto row = std::span(logits).subspan(i * 40, 40);
    const auto logit = static_cast<double>(row[static_cast<size_t>(ids_[i + 1])]);
    over_all_rows.push_back(log_sum_exp(row) - logit);
    EXPECT_EQ(ours[i], log_sum_exp(row.first(33)) - logit) << i;
  }
  EXPECT_TRUE(close(over_all_rows, want, Tolerance{1e-4, 0}));
  const double mean = std::accumulate(over_all_rows.begin() + 10, over_all_rows.end(), 0.0) / 50;
  EXPECT_NEAR(mean, golden_["mean_nll_after_10"].get<double>(), 1e-5);
}

TEST_F(ProtMamba, PrefillOf61IsPrefillOf16And45Steps) {
  Conversation whole, stepped;
  GenerationRequest request = greedy(ids_, 0);
  request.conversation = &whole;
  generate(*engine_, request);
  request = greedy(first(16), 0);
  request.conversation = &stepped;
  generate(*engine_, request);
  for (size_t i = 16; i < ids_.size(); ++i) {
    request.prompt = {ids_[i]};
    generate(*engine_, request);
  }
  EXPECT_EQ(stepped.length, whole.length);
  EXPECT_EQ(stepped.token_hash, whole.token_hash);
  EXPECT_TRUE(close(state_values(*engine_, stepped.state), state_values(*engine_, whole.state),
                    kScan));  // 8 layers on top of each other: the bar of the scan
  EXPECT_TRUE(close(stepped.logits, whole.logits, kReplayLogits));
}

TEST_F(ProtMamba, SavedAt16ContinuesInANewEngine) {
  const TempDir dir;
  Conversation c;
  GenerationRequest request = greedy(first(16), 0);
  request.conversation = &c;
  generate(*engine_, request);
  save_conversation(*engine_, c, dir.path("state"));
  const auto other = Engine::load(kFolder, {.threads = 1});
  Conversation loaded = load_conversation(*other, dir.path("state"));
  request = greedy({}, 45);
  request.conversation = &loaded;
  const auto result = generate(*other, request);
  EXPECT_EQ(result.tokens, std::vector<int32_t>(ids_.begin() + 16, ids_.end()));
  EXPECT_EQ(result.cached_tokens, 16);
}

// Ids 33 to 39 fill the vocabulary up to a multiple of 8.
TEST_F(ProtMamba, PaddingIsNeverProduced) {
  EXPECT_EQ(engine_->vocab_limit(), 33);
  EXPECT_EQ(engine_->config().vocab_rows, 40);
  for (const auto& [temperature, tokens] : {std::pair(5.0f, 2000), std::pair(100.0f, 600)}) {
    GenerationRequest request = greedy({0}, tokens);
    request.sampling.temperature = temperature;
    request.sampling.top_p = 1;
    std::set<int32_t> seen;
    for (const int32_t id : generate(*engine_, request).tokens) seen.insert(id);
    EXPECT_LT(*seen.rbegin(), 33);
    // At 100 the choice is nearly even, so a padding id would have shown itself.
    if (temperature == 100.0f) {
      EXPECT_EQ(seen.size(), 33u);
    }
  }
}

}  // namespace
}  // namespace adder
