#include "engine/gguf_metadata.h"

#include "core/error.h"

namespace adder {

void add_gguf_metadata(GgufWriter& writer, const Checkpoint& source, const ModelConfig& c,
                       DType type) {
  const uint32_t file_type = type == DType::kF16    ? 1
                             : type == DType::kQ4_0 ? 2
                             : type == DType::kQ8_0 ? 7
                             : type == DType::kQ4_K ? 14
                             : type == DType::kBF16 ? 32
                                                    : 0;
  if (source.gguf() != nullptr) {
    for (const auto& [key, value] : source.gguf()->values()) {
      if (key != "general.file_type" && key != kGgufAlignmentKey) writer.add(key, value);
    }
    writer.add_u32("general.file_type", file_type);
    return;
  }
  const bool mamba2 = c.mixer == MixerKind::kMamba2;
  const std::string arch = mamba2 ? "mamba2" : "mamba";
  const auto u32 = [&](const char* key, int64_t value) {
    writer.add_u32(arch + key, static_cast<uint32_t>(value));
  };
  writer.add_string("general.architecture", arch);
  writer.add_u32("general.file_type", file_type);
  u32(".block_count", c.n_layer);
  u32(".embedding_length", c.d_model);
  u32(".context_length", 1 << 20);
  u32(".feed_forward_length", 0);
  u32(".attention.head_count", 0);
  writer.add_f32(arch + ".attention.layer_norm_rms_epsilon", c.norm_eps);
  u32(".ssm.conv_kernel", c.d_conv);
  u32(".ssm.inner_size", c.d_inner);
  u32(".ssm.state_size", c.d_state);
  u32(".ssm.time_step_rank", mamba2 ? c.n_heads : c.dt_rank);
  if (mamba2) u32(".ssm.group_count", c.n_groups);
  if (c.bcdt_rms_eps) {
    writer.add_bool(arch + ".ssm.dt_b_c_rms", true);
    writer.add_f32("adder.mixer_rms_eps", *c.bcdt_rms_eps);
  }
  u32(".vocab_size", c.vocab_rows);
  writer.add_u32("adder.vocab_size", static_cast<uint32_t>(c.vocab_size));
  if (const auto t = source.config().get_string("tokenizer")) writer.add_string("tokenizer", *t);
}

}  // namespace adder
