// Embeddings against the hidden states of one step, and what runs in between.
#include "engine/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "engine/engine_testing.h"

namespace adder {
namespace {

using testing::golden_engine;
using testing::golden_families;
using testing::random_ids;

double length_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares);
}

// (tokens, d_model) of a fresh sequence in one step.
std::vector<float> hidden_states(Engine& engine, const std::vector<int32_t>& tokens) {
  StateHandle state = engine.states().acquire();
  const Piece piece{&state, tokens};
  const Tensor hidden = engine.step(std::span(&piece, 1));
  std::vector<float> rows(static_cast<size_t>(hidden.size()));
  engine.backend().read(hidden, std::as_writable_bytes(std::span(rows)));
  return rows;
}

TEST(Embedding, IsTheMeanOrTheLastHiddenStateAtLengthOne) {
  for (const std::string& family : golden_families()) {
    const auto engine = golden_engine(family);
    const auto tokens = random_ids(3, 40);
    const std::vector<float> rows = hidden_states(*engine, tokens);
    const size_t width = rows.size() / tokens.size();
    std::vector<double> mean(width), last(rows.end() - static_cast<int64_t>(width), rows.end());
    for (size_t i = 0; i < rows.size(); ++i) mean[i % width] += static_cast<double>(rows[i]);
    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
      std::vector<double>& want = pooling == Pooling::kMean ? mean : last;
      double squares = 0;
      for (const double v : want) squares += v * v;
      const std::vector<float> got = embed(*engine, tokens, pooling);
      ASSERT_EQ(got.size(), width);
      EXPECT_NEAR(length_of(got), 1.0, 1e-6) << family;
      for (size_t i = 0; i < width; ++i) {
        // Both sides round a double once.
        EXPECT_FLOAT_EQ(got[i], static_cast<float>(want[i] / std::sqrt(squares))) << family;
      }
    }
  }
}

TEST(Embedding, HasTheSameBitsWhateverRunsBetweenItsBlocks) {
  EngineOptions options;
  options.block = 16;
  options.slots = 3;
  const auto engine = golden_engine("mamba1_hf", options);
  const auto tokens = random_ids(4, 100), others = random_ids(5, 16);
  const std::vector<float> alone = embed(*engine, tokens, Pooling::kMean);
  EmbeddingRun run(*engine, tokens, Pooling::kMean), second(*engine, others, Pooling::kLast);
  StateHandle other = engine->states().acquire();
  int blocks = 1;
  while (!run.advance()) {
    const Piece piece{&other, others};
    engine->step(std::span(&piece, 1));
    second.advance();
    ++blocks;
  }
  EXPECT_EQ(blocks, 7);
  EXPECT_EQ(run.result(), alone);
}

TEST(Embedding, GivesItsSlotBackAndRefusesWithoutOne) {
  const auto engine = golden_engine("mamba1_hf");
  {
    const EmbeddingRun run(*engine, {1, 2}, Pooling::kMean);
    EXPECT_EQ(engine->states().free_slots(), 0);
    EXPECT_THROW(EmbeddingRun(*engine, {1}, Pooling::kMean), Error);
    EXPECT_THROW((void)run.result(), Error);  // not processed yet
  }
  EXPECT_EQ(engine->states().free_slots(), 1);
  EXPECT_THROW(embed(*engine, {}, Pooling::kMean), Error);
  EXPECT_THROW(embed(*engine, {-1}, Pooling::kMean), Error);
  EXPECT_THROW(embed(*engine, {1 << 20}, Pooling::kMean), Error);
  EXPECT_EQ(engine->states().free_slots(), 1);
}

}  // namespace
}  // namespace adder
