#include "measure/model_cost.h"

#include <algorithm>
#include <array>

namespace adder {
namespace {

// Whether a tensor is a matrix of the layers, by its name in the dialect of the checkpoint.
bool is_layer_matrix(const TensorNames& names, std::string_view name) {
  static constexpr std::array kMatrices = {"mixer.in_proj.weight", "mixer.in_proj_dt.weight",
                                           "mixer.x_proj.weight", "mixer.dt_proj.weight",
                                           "mixer.out_proj.weight"};
  return std::any_of(kMatrices.begin(), kMatrices.end(), [&](std::string_view matrix) {
    const std::string first = names.layer(0, matrix);
    return name.ends_with(std::string_view(first).substr(first.rfind('0') + 1));
  });
}

}  // namespace

ModelCost model_cost(const Checkpoint& checkpoint, const ModelConfig& config) {
  const TensorNames names = tensor_names(checkpoint);
  ModelCost cost;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name == names.embedding && !config.tied_head) continue;
    if (name == names.lm_head && config.tied_head) continue;  // stored twice, used once
    cost.weight_bytes += static_cast<double>(row_bytes(tensor.dtype, tensor.size()));
    if (is_layer_matrix(names, name)) cost.layer_flops += 2.0 * static_cast<double>(tensor.size());
  }
  cost.head_flops = 2.0 * static_cast<double>(config.vocab_rows * config.d_model);
  cost.state_bytes = 2.0 * static_cast<double>(config.state_bytes());
  return cost;
}

}  // namespace adder
