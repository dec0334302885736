// Sizes and switches of a model, derived from its tensors and checked against its config.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace adder {

enum class MixerKind { kMamba1, kMamba2 };

struct ModelConfig {
  std::string family;  // "mamba", "mamba2", "falcon_mamba"
  MixerKind mixer = MixerKind::kMamba1;

  int64_t n_layer = 0;
  int64_t d_model = 0;
  int64_t d_inner = 0;
  int64_t d_state = 0;
  int64_t d_conv = 0;
  int64_t dt_rank = 0;   // Mamba-1
  int64_t n_heads = 0;   // Mamba-2
  int64_t headdim = 0;   // Mamba-2
  int64_t n_groups = 1;  // Mamba-2

  int64_t vocab_rows = 0;  // rows of the embedding, padding included
  int64_t vocab_size = 0;  // ids from here on are padding as far as the config knows
  bool tied_head = true;

  float norm_eps = 1e-5f;
  std::optional<float> bcdt_rms_eps;  // Falcon-Mamba: weightless RMS norm on B, C and dt
  bool gated_norm = false;  // Mamba-2: norm before out_proj, else the scan applies the gate
  bool norm_before_gate = false;
  float dt_min = 0.0f;  // Mamba-2 time_step_limit
  float dt_max = std::numeric_limits<float>::infinity();

  std::vector<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<int64_t> trained_length;  // reported, never enforced
  std::vector<std::string> warnings;      // oddities worth a line in `adder inspect`

  // Channels of the convolution: d_inner (x) for Mamba-1, plus 2 * n_groups * d_state (B, C) for
  // Mamba-2.
  int64_t conv_channels() const {
    return mixer == MixerKind::kMamba1 ? d_inner : d_inner + 2 * n_groups * d_state;
  }
  int64_t in_proj_rows() const {
    return mixer == MixerKind::kMamba1 ? 2 * d_inner : d_inner + conv_channels() + n_heads;
  }
  // Bytes of one sequence's state over all layers (float32 conv and SSM state).
  int64_t state_bytes() const {
    return n_layer * 4 * ((d_conv - 1) * conv_channels() + d_inner * d_state);
  }
};

// Where the tensors of a checkpoint are found.
struct TensorNames {
  std::string prefix;           // "backbone.", "model.backbone." or "model."
  std::string embedding;        // full name
  std::string lm_head;          // full name, stored or not
  std::string norm_f;           // full name
  bool has_mixer_level = true;  // false: the old port's "layers.0.in_proj", without "mixer."
  bool is_gguf = false;         // "blk.0.ssm_in.weight" for "layers.0.mixer.in_proj.weight"
  // suffix: the reference's name, "norm.weight" or "mixer.conv1d.bias". GGUF's ssm_a, which stands
  // for "mixer.A_log", holds A = -exp(A_log) itself.
  std::string layer(int64_t i, std::string_view suffix) const;
};

TensorNames tensor_names(const Checkpoint& checkpoint);
TensorNames gguf_names();
TensorNames hugging_face_names();

// Tensor shapes win over config values; a contradiction is an error that names both.
// Throws Error(kBadInput) for wrong input and Error(kUnsupported) for what Adder cannot run yet.
ModelConfig derive_config(const Checkpoint& checkpoint);

}  // namespace adder
