// One table of tensor names per spelling.
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "model/config.h"

namespace adder {
namespace {

// The names of GGUF, beside the reference's.
constexpr std::pair<std::string_view, std::string_view> kGgufNames[] = {
    {"norm.weight", "attn_norm.weight"},
    {"mixer.in_proj.weight", "ssm_in.weight"},
    {"mixer.in_proj_dt.weight", "ssm_in_dt.weight"},  // Adder's own: dt rows at 8 bits
    {"mixer.in_proj.bias", "ssm_in.bias"},
    {"mixer.conv1d.weight", "ssm_conv1d.weight"},
    {"mixer.conv1d.bias", "ssm_conv1d.bias"},
    {"mixer.x_proj.weight", "ssm_x.weight"},
    {"mixer.dt_proj.weight", "ssm_dt.weight"},
    {"mixer.dt_proj.bias", "ssm_dt.bias"},
    {"mixer.dt_bias", "ssm_dt.bias"},
    {"mixer.A_log", "ssm_a"},
    {"mixer.D", "ssm_d"},
    {"mixer.norm.weight", "ssm_norm.weight"},
    {"mixer.out_proj.weight", "ssm_out.weight"},
    {"mixer.out_proj.bias", "ssm_out.bias"},
};

}  // namespace

std::string TensorNames::layer(int64_t i, std::string_view suffix) const {
  if (is_gguf) {
    for (const auto& [reference, gguf] : kGgufNames) {
      if (reference == suffix) return fmt::format("blk.{}.{}", i, gguf);
    }
    return fmt::format("blk.{}.{}", i, suffix);  // a part that no GGUF file has
  }
  constexpr std::string_view kMixer = "mixer.";
  if (!has_mixer_level && suffix.starts_with(kMixer)) suffix.remove_prefix(kMixer.size());
  return fmt::format("{}layers.{}.{}", prefix, i, suffix);
}

TensorNames gguf_names() {
  return {"", "token_embd.weight", "output.weight", "output_norm.weight", true, true};
}

TensorNames hugging_face_names() {
  return {"backbone.", "backbone.embeddings.weight", "lm_head.weight", "backbone.norm_f.weight"};
}

TensorNames tensor_names(const Checkpoint& checkpoint) {
  if (checkpoint.dialect() == Dialect::kGguf) return gguf_names();
  for (std::string_view root : {"", "model."}) {
    for (std::string_view embedding : {"embedding", "embeddings"}) {
      const std::string name = fmt::format("{}backbone.{}.weight", root, embedding);
      if (checkpoint.find(name) != nullptr) {
        return {fmt::format("{}backbone.", root), name, fmt::format("{}lm_head.weight", root),
                fmt::format("{}backbone.norm_f.weight", root)};
      }
    }
  }
  if (checkpoint.find("model.embedding.weight") != nullptr) {
    return {"model.", "model.embedding.weight", "lm_head.weight", "model.norm_f.weight", false};
  }
  bad_input(
      "{}: expected a tensor 'backbone.embedding.weight' or 'backbone.embeddings.weight', got "
      "none; not a Mamba checkpoint",
      checkpoint.path());
}

}  // namespace adder
