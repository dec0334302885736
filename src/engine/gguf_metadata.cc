#include "engine/gguf_metadata.h"

#include <cmath>

#include "core/error.h"
#include "engine/gguf_tokenizer.h"

namespace adder {
namespace {

constexpr std::string_view kFileType = "general.file_type";

// llama.cpp's number for files that mostly hold this type.
uint32_t file_type(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ8_0:
      return 7;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

void add_architecture(GgufWriter& writer, const ModelConfig& c) {
  const bool mamba2 = c.mixer == MixerKind::kMamba2;
  const std::string arch = mamba2 ? "mamba2" : "mamba";
  const auto u32 = [&](const char* key, int64_t value) {
    writer.add_u32(arch + key, static_cast<uint32_t>(value));
  };
  u32(".context_length", 1 << 20);  // what llama.cpp's converter writes; it says nothing
  u32(".embedding_length", c.d_model);
  u32(".feed_forward_length", 0);  // these two are wanted by the loader and not used
  u32(".attention.head_count", 0);
  u32(".block_count", c.n_layer);
  u32(".ssm.conv_kernel", c.d_conv);
  u32(".ssm.inner_size", c.d_inner);
  u32(".ssm.state_size", c.d_state);
  u32(".ssm.time_step_rank", mamba2 ? c.n_heads : c.dt_rank);
  if (mamba2) {
    u32(".ssm.group_count", c.n_groups);
  } else {
    writer.add_bool(arch + ".ssm.dt_b_c_rms", c.bcdt_rms_eps.has_value());
  }
  writer.add_f32(arch + ".attention.layer_norm_rms_epsilon", c.norm_eps);
  u32(".vocab_size", c.vocab_rows);
}

// What GGUF has no key for.
void add_own_keys(GgufWriter& writer, const Checkpoint& source, const ModelConfig& c) {
  if (c.vocab_size != c.vocab_rows) {
    writer.add_u32("adder.vocab_size", static_cast<uint32_t>(c.vocab_size));
  }
  if (c.bcdt_rms_eps) writer.add_f32("adder.mixer_rms_eps", *c.bcdt_rms_eps);
  if (c.norm_before_gate) writer.add_bool("adder.norm_before_gate", true);
  if (c.dt_min > 0) writer.add_f32("adder.time_step_min", c.dt_min);
  if (std::isfinite(c.dt_max)) writer.add_f32("adder.time_step_max", c.dt_max);
  if (const auto t = source.config().get_string("tokenizer")) writer.add_string("tokenizer", *t);
}

void add_tokenizer(GgufWriter& writer, const Checkpoint& source, const ModelConfig& c,
                   std::vector<std::string>& warnings) {
  std::optional<GgufVocabulary> vocabulary;
  try {
    vocabulary = gguf_vocabulary_of(source);
    if (!vocabulary) warnings.emplace_back("no tokenizer beside the weights: none is written");
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) throw;
    warnings.push_back(fmt::format("{}; no tokenizer is written", e.what()));
  }
  // The config's ids win over the tokenizer's, as when the model runs.
  const auto eos = c.eos_ids.empty() ? std::optional<int32_t>() : c.eos_ids[0];
  if (vocabulary) {
    if (eos) vocabulary->eos = eos;
    add_gguf_vocabulary(writer, std::move(*vocabulary), c.vocab_rows, source.path());
  } else {
    writer.add_string("tokenizer.ggml.model", "none");
    if (eos) writer.add_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(*eos));
  }
  if (c.eos_ids.size() > 1) {
    warnings.push_back(fmt::format(
        "the config ends texts with {} tokens; only the first is written", c.eos_ids.size()));
  }
  if (!source.directory().empty()) {
    if (const auto chat = read_chat_template(source.directory())) {
      writer.add_string("tokenizer.chat_template", *chat);
    }
  }
}

// What the format can hold and llama.cpp cannot run.
void warn_about_llama(const Checkpoint& source, const ModelConfig& c,
                      std::vector<std::string>& warnings) {
  const TensorNames names = tensor_names(source);
  const auto has = [&](std::string_view suffix) {
    return source.find(names.layer(0, suffix)) != nullptr;
  };
  const auto refuses = [&](bool condition, std::string_view what) {
    if (condition) warnings.push_back(fmt::format("llama.cpp cannot run this model: {}", what));
  };
  const bool mamba2 = c.mixer == MixerKind::kMamba2;
  refuses(!mamba2 && c.d_inner != 2 * c.d_model, "d_inner is not twice d_model");
  refuses(!has("mixer.conv1d.bias"), "the convolution has no bias");
  refuses(has("mixer.in_proj.bias") || has("mixer.out_proj.bias"), "the projections have biases");
  refuses(mamba2 && !c.gated_norm, "there is no gated norm");
  const StoredTensor* d = source.find(names.layer(0, "mixer.D"));
  refuses(mamba2 && d != nullptr && d->size() != c.n_heads, "D has a value per channel");
  const auto differs = [&](bool condition, std::string_view what) {
    if (condition) warnings.push_back(fmt::format("llama.cpp ignores {}", what));
  };
  differs(c.norm_before_gate, "norm_before_gate");
  differs(c.dt_min > 0 || std::isfinite(c.dt_max), "the limits of the time step");
  differs(c.bcdt_rms_eps && *c.bcdt_rms_eps != c.norm_eps,
          "the epsilon of the norms of B, C and dt and takes that of the other norms");
}

}  // namespace

std::vector<std::string> add_gguf_metadata(GgufWriter& writer, const Checkpoint& source,
                                           const ModelConfig& c, DType type) {
  std::vector<std::string> warnings;
  if (source.gguf() != nullptr) {
    for (const auto& [key, value] : source.gguf()->values()) {
      if (key != kFileType && key != kGgufAlignmentKey) writer.add(key, value);
    }
  } else {
    writer.add_string("general.architecture", c.mixer == MixerKind::kMamba2 ? "mamba2" : "mamba");
    writer.add_string("general.type", "model");
    add_architecture(writer, c);
    add_own_keys(writer, source, c);
    add_tokenizer(writer, source, c, warnings);
    warn_about_llama(source, c, warnings);
  }
  writer.add_u32(kFileType, file_type(type));
  if (is_quantized(type) && !writer.has("general.quantization_version")) {
    writer.add_u32("general.quantization_version", 2);
  }
  return warnings;
}

}  // namespace adder
