// Embeddings: a text as one vector of length 1, from the model's final hidden states.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace adder {

enum class Pooling {
  kMean,  // over all positions
  kLast,  // the last position, which has seen everything
};

// One prompt, a block at a time, so that others can use the engine between the blocks. The same
// prompt gives the same bits whatever runs in between.
class EmbeddingRun {
 public:
  // Throws Error(kBadInput) for ids that the model cannot take or an empty prompt, and when no slot
  // of the engine is free.
  EmbeddingRun(Engine& engine, std::vector<int32_t> tokens, Pooling pooling);

  // Processes one block, at most engine.block() tokens; true when it was the last one.
  bool advance();
  // After the last block: (d_model) values of Euclidean length 1; all zero where the hidden states
  // are. Throws Error when they are not finite.
  std::vector<float> result() const;

 private:
  Engine& engine_;
  std::vector<int32_t> tokens_;
  Pooling pooling_;
  StateHandle state_;
  size_t done_ = 0;
  std::vector<float> rows_;  // the hidden states of a block, (tokens, d_model)
  std::vector<double> sum_;  // (d_model)
};

// All at once.
std::vector<float> embed(Engine& engine, std::vector<int32_t> tokens, Pooling pooling);

}  // namespace adder
