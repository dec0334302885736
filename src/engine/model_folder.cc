#include "engine/model_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "engine/atomic_file.h"
#include "engine/gguf_tokenizer.h"

namespace adder {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& target) : target_(target) {
  while (target_.size() > 1 && target_.ends_with('/')) target_.pop_back();
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(target_, error));
  if (exists && !(fs::is_directory(target_, error) && fs::is_empty(target_, error))) {
    bad_input("{}: cannot write: expected a new or an empty folder", target_);
  }
  path_ = target_ + ".XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) {
    fail(ErrorCode::kIo, "{}: cannot create: {}", target_, std::strerror(errno));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void TemporaryFolder::commit() {
  // mkdtemp makes private folders; the result gets the permissions of any other new one.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::chmod(path_.c_str(), 0777 & ~mask) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0) {
    fail(ErrorCode::kIo, "{}: cannot write: {}", target_, std::strerror(errno));
  }
  path_.clear();
}

namespace {

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_tokenizer(const GgufMetadata& metadata, const std::string& folder) {
  const auto vocabulary = read_gguf_vocabulary(metadata);
  if (!vocabulary) return;
  const auto tokenizer = make_gguf_tokenizer(*vocabulary, metadata.file());
  const bool gpt2 = vocabulary->model == "gpt2";
  write_text(folder + (gpt2 ? "/tokenizer.json" : "/tokenizer.model"),
             gguf_tokenizer_file(*vocabulary, metadata.file()));
  nlohmann::ordered_json config;
  config["tokenizer_class"] = gpt2 ? "PreTrainedTokenizerFast" : "LlamaTokenizer";
  const auto token = [&](const char* key, std::optional<int32_t> id) {
    if (id) config[key] = vocabulary->tokens[static_cast<size_t>(*id)];
  };
  token("bos_token", tokenizer->bos_id());
  token("eos_token", tokenizer->eos_id());
  config["add_bos_token"] = tokenizer->wants_bos();
  if (const auto chat = metadata.get_string("tokenizer.chat_template")) {
    config["chat_template"] = *chat;
  }
  write_text(folder + "/tokenizer_config.json", dump(config));
}

}  // namespace

std::string hugging_face_config(const ModelConfig& c, const Checkpoint& source) {
  const bool mamba2 = c.mixer == MixerKind::kMamba2;
  const TensorNames names = tensor_names(source);
  const auto has = [&](std::string_view suffix) {
    return source.find(names.layer(0, suffix)) != nullptr;
  };
  nlohmann::ordered_json j;
  j["architectures"] = {mamba2                       ? "Mamba2ForCausalLM"
                        : c.family == "falcon_mamba" ? "FalconMambaForCausalLM"
                                                     : "MambaForCausalLM"};
  j["model_type"] = c.family;
  j["hidden_size"] = c.d_model;
  j["num_hidden_layers"] = c.n_layer;
  j["state_size"] = c.d_state;
  j["conv_kernel"] = c.d_conv;
  j["intermediate_size"] = c.d_inner;
  if (c.d_inner % c.d_model == 0) j["expand"] = c.d_inner / c.d_model;
  if (mamba2) {
    j["num_heads"] = c.n_heads;
    j["head_dim"] = c.headdim;
    j["n_groups"] = c.n_groups;
  } else {
    j["time_step_rank"] = c.dt_rank;
  }
  if (c.bcdt_rms_eps) j["mixer_rms_eps"] = *c.bcdt_rms_eps;
  j["layer_norm_epsilon"] = c.norm_eps;
  j["vocab_size"] = c.vocab_rows;
  if (c.vocab_size != c.vocab_rows) j["adder.vocab_size"] = c.vocab_size;
  if (c.norm_before_gate) j["adder.norm_before_gate"] = true;
  if (c.dt_min > 0) j["adder.time_step_min"] = c.dt_min;
  if (std::isfinite(c.dt_max)) j["adder.time_step_max"] = c.dt_max;
  if (c.dt_min > 0 && std::isfinite(c.dt_max)) j["time_step_limit"] = {c.dt_min, c.dt_max};
  j["tie_word_embeddings"] = c.tied_head;
  j["use_bias"] = has("mixer.in_proj.bias");
  j["use_conv_bias"] = has("mixer.conv1d.bias");
  j["hidden_act"] = "silu";
  j["residual_in_fp32"] = true;
  if (c.bos_id) j["bos_token_id"] = *c.bos_id;
  if (c.eos_ids.size() == 1) j["eos_token_id"] = c.eos_ids[0];
  if (c.eos_ids.size() > 1) j["eos_token_id"] = c.eos_ids;
  if (const auto t = source.config().get_string("tokenizer")) j["tokenizer"] = *t;
  if (c.trained_length) j["train_length"] = *c.trained_length;
  return dump(j);
}

void write_companions(const Checkpoint& source, const std::string& config,
                      const std::string& folder) {
  write_text(folder + "/config.json", config);
  if (source.gguf() != nullptr) return write_tokenizer(*source.gguf(), folder);
  if (source.directory().empty()) return;
  constexpr std::array<std::string_view, 5> kPrefixes = {"tokenizer", "special_tokens_map.json",
                                                         "generation_config.json", "chat_template",
                                                         "added_tokens.json"};
  for (const fs::directory_entry& entry : fs::directory_iterator(source.directory())) {
    const std::string name = entry.path().filename().string();
    const bool wanted = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                    [&](std::string_view p) { return name.starts_with(p); });
    if (wanted && entry.is_regular_file()) fs::copy_file(entry.path(), fs::path(folder) / name);
  }
}

}  // namespace adder
