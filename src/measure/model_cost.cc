#include "measure/model_cost.h"

namespace adder {

ModelCost model_cost(const Checkpoint& checkpoint, const ModelConfig& config) {
  const TensorNames names = tensor_names(checkpoint);
  ModelCost cost;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name == names.embedding && !config.tied_head) continue;
    if (name == names.lm_head && config.tied_head) continue;  // stored twice, used once
    cost.weight_bytes += static_cast<double>(row_bytes(tensor.dtype, tensor.size()));
    const bool matrix = tensor.shape.size() == 2 && name.find("proj") != std::string::npos;
    if (matrix) cost.layer_flops += 2.0 * static_cast<double>(tensor.size());
  }
  cost.head_flops = 2.0 * static_cast<double>(config.vocab_rows * config.d_model);
  cost.state_bytes = 2.0 * static_cast<double>(config.state_bytes());
  return cost;
}

}  // namespace adder
