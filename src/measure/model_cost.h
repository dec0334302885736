// Work of a token in the big matrices of a model, counted from its tensors.
#pragma once

#include "io/checkpoint.h"
#include "model/config.h"

namespace adder {

struct ModelCost {
  // Bytes that one step reads whatever the number of its tokens: all weights but an embedding of
  // its own, of which a step reads single rows.
  double weight_bytes = 0;
  double layer_flops = 0;  // of one token in the matrices of all layers, 2 per weight
  double head_flops = 0;   // of one row of logits
  double state_bytes = 0;  // read and written for each sequence of a step
};

ModelCost model_cost(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace adder
