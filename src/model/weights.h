// The weights of a model as handles of a backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/tensor.h"
#include "io/checkpoint.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace adder {

// Names are the reference's. Big matrices keep the dtype of the file; everything the
// recurrence depends on is raised to float32 and brought into the operations' layout at load.
struct LayerWeights {
  Tensor norm;          // (d_model) f32
  Tensor in_proj;       // (in_proj_rows, d_model), or without the n_heads rows of in_proj_dt
  Tensor in_proj_bias;  // (rows of in_proj) f32; optional
  Tensor in_proj_dt;  // (n_heads, d_model): Mamba-2's dt rows where they have a dtype of their own
  Tensor in_proj_dt_bias;  // (n_heads) f32; optional
  Tensor conv_weight;      // (d_conv, conv_channels) f32: transposed
  Tensor conv_bias;        // (conv_channels) f32; optional
  Tensor x_proj;           // (dt_rank + 2 d_state, d_inner); Mamba-1
  Tensor dt_proj;          // (d_inner, dt_rank); Mamba-1
  Tensor dt_bias;          // (d_inner) f32 for Mamba-1, (n_heads) f32 for Mamba-2
  Tensor A_log2e;          // (d_state, d_inner) f32 or (n_heads) f32: -exp(A_log) * log2(e)
  Tensor D;                // (d_inner) f32; Mamba-2 (n_heads) or (n_heads, headdim) f32
  Tensor gated_norm;       // (d_inner) f32; Mamba-2, optional
  Tensor out_proj;         // (d_model, d_inner)
  Tensor out_proj_bias;    // (d_model) f32; optional
};

class Weights {
 public:
  // Maps every tensor of the checkpoint; a missing or an unknown one is an error. The checkpoint
  // must outlive the weights. Throws Error(kBadInput) also for a NaN or Inf in a raised tensor.
  static Weights load(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend);

  Tensor embedding;  // (vocab_rows, d_model)
  Tensor lm_head;    // (vocab_rows, d_model): the same values when tied
  Tensor norm_f;     // (d_model) f32
  std::vector<LayerWeights> layers;

 private:
  std::vector<Buffer> owned_;
};

// A tensor that holds a NaN or Inf, or null when there is none. Reads every weight, so it is asked
// only when a result is already known to be broken.
const StoredTensor* find_non_finite(const Checkpoint& checkpoint);

// SHA-256 in hex over the sizes of the model and a fixed sample of every tensor's bytes: tells
// models apart without reading gigabytes.
std::string fingerprint(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace adder
