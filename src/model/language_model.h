// A Mamba language model: weights, configuration, and the one forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/batch.h"
#include "model/config.h"
#include "model/state.h"
#include "model/weights.h"

namespace adder {

// Scratch of one step, allocated once for its largest size.
class Workspace {
 public:
  Workspace(const ModelConfig& config, Backend& backend, int64_t max_tokens,
            int64_t max_logit_rows);

  int64_t max_tokens() const { return max_tokens_; }
  int64_t max_logit_rows() const { return max_logit_rows_; }

 private:
  friend class LanguageModel;
  // (rows, width) f32 view of the first rows of one array.
  struct Array {
    Buffer buffer;
    Tensor full;
    Tensor rows(int64_t n) const { return full.slice(0, 0, n); }
  };
  Array make(Backend& backend, int64_t rows, int64_t width);

  int64_t max_tokens_, max_logit_rows_;
  Array residual, normed, branch;  // (tokens, d_model)
  Array in_proj;                   // (tokens, in_proj_rows)
  Array conv;                      // (tokens, conv_channels)
  Array x_proj;                    // (tokens, dt_rank + 2 d_state); Mamba-1
  Array delta;                     // (tokens, d_inner); Mamba-1
  Array y;                         // (tokens, d_inner)
  Array picked;                    // (logit rows, d_model)
  Array logits;                    // (logit rows, vocab_rows)
};

class LanguageModel {
 public:
  // Maps the weights. The backend must outlive the model.
  // Throws Error(kBadInput / kUnsupported) naming the file and the field.
  LanguageModel(std::shared_ptr<const Checkpoint> checkpoint, Backend& backend);

  const ModelConfig& config() const { return config_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  Backend& backend() const { return backend_; }
  const Weights& weights() const { return weights_; }

  // Runs tokens (batch.n_tokens()) of the packed sequences through all layers and advances their
  // state. Returns the final, normalised hidden state (n_tokens, d_model) f32, valid until the next
  // call with this workspace. Throws Error(kBadInput) for an id outside the vocabulary.
  Tensor forward(std::span<const int32_t> tokens, const PackedBatch& batch, const StatePool& state,
                 Workspace& workspace) const;

  // Logits (rows, vocab_rows) f32 of some rows of `hidden`, valid until the next call.
  Tensor logits(const Tensor& hidden, std::span<const int32_t> rows, Workspace& workspace) const;
  // Where logits() puts its first n rows, for callers that bring logits of their own.
  Tensor logits_rows(int64_t n, Workspace& workspace) const { return workspace.logits.rows(n); }

 private:
  void mamba1_mixer(const LayerWeights& w, const PackedBatch& batch, const Tensor& conv_state,
                    const Tensor& ssm_state, Workspace& workspace) const;
  void mamba2_mixer(const LayerWeights& w, const PackedBatch& batch, const Tensor& conv_state,
                    const Tensor& ssm_state, Workspace& workspace) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  Backend& backend_;
  ModelConfig config_;
  Weights weights_;
};

}  // namespace adder
