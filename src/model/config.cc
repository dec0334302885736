#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"

namespace adder {
namespace {

using std::optional;
using std::string;
using std::string_view;

// Keys of one quantity in the dialects, the first one present wins.
optional<int64_t> first_int(const JsonValue& config, std::initializer_list<string_view> keys) {
  for (string_view key : keys) {
    if (const auto value = config.get_int(key)) return value;
  }
  return std::nullopt;
}

// Reads the config beside the tensors and compares what both know.
class ConfigReader {
 public:
  explicit ConfigReader(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), config_(checkpoint.config()) {
    if (const auto ssm = config_.get_object("ssm_cfg")) ssm_cfg_ = *ssm;
  }

  ModelConfig read() {
    read_architecture();
    refuse_unsupported();  // before the names: those of a hybrid say little about why it is refused
    names_ = tensor_names(checkpoint_);
    detect_family();
    read_vocabulary();
    count_layers();
    if (out_.mixer == MixerKind::kMamba1) {
      read_mamba1();
    } else {
      read_mamba2();
    }
    read_norms();
    read_tokens();
    return out_;
  }

 private:
  const StoredTensor& need(const string& name, size_t rank) const {
    const StoredTensor* t = checkpoint_.find(name);
    if (t == nullptr) bad_input("{}: tensor '{}' is missing", checkpoint_.path(), name);
    if (t->shape.size() != rank) {
      bad_input("{}: tensor '{}': expected {} axes, got {}", t->file, name, rank, t->shape.size());
    }
    for (int64_t d : t->shape) {
      if (d <= 0) bad_input("{}: tensor '{}': expected sizes above 0, got {}", t->file, name, d);
    }
    return *t;
  }
  const StoredTensor& need_layer0(string_view suffix, size_t rank) const {
    return need(names_.layer(0, suffix), rank);
  }

  // A key of GGUF metadata that belongs to the architecture: "ssm.inner_size" for
  // "mamba.ssm.inner_size".
  string arch_key(string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  // Compares such a key with what a tensor says; nothing happens for the other dialects.
  void agree_arch(string_view key, string_view tensor, int64_t derived) const {
    if (!architecture_.empty()) {
      agree(arch_key(key), config_.get_int(arch_key(key)), tensor, derived);
    }
  }

  // From general.architecture of a GGUF file.
  void read_architecture() {
    if (checkpoint_.dialect() != Dialect::kGguf) return;
    constexpr string_view kKey = "general.architecture";
    architecture_ = config_.get_string(kKey).value_or("");
    if (architecture_ == "mamba" || architecture_ == "mamba2") return;
    fail(ErrorCode::kUnsupported, "{}: key '{}': expected mamba or mamba2, got '{}'",
         config_.name(), kKey, architecture_);
  }

  void agree(string_view field, optional<int64_t> configured, string_view tensor,
             int64_t derived) const {
    if (configured && *configured != derived) {
      bad_input("{}: field '{}' is {}, but tensor '{}' says {}", config_.name(), field, *configured,
                tensor, derived);
    }
  }

  void refuse_unsupported() const {
    const string type = config_.get_string("model_type").value_or("");
    for (string_view hybrid : {"jamba", "bamba", "granitemoehybrid", "nemotron_h", "falcon_h1",
                               "zamba", "zamba2", "plamo2"}) {
      if (type == hybrid) {
        fail(ErrorCode::kUnsupported,
             "{}: model_type '{}': hybrids with attention are not supported", config_.name(), type);
      }
    }
    if (config_.get_int("num_attention_heads").value_or(0) > 0) {
      fail(ErrorCode::kUnsupported,
           "{}: field 'num_attention_heads': attention layers are not supported", config_.name());
    }
    if (ssm_cfg_.get_string("layer").value_or("") == "Mamba3") {
      fail(ErrorCode::kUnsupported, "{}: field 'ssm_cfg.layer': Mamba-3 is not supported",
           config_.name());
    }
    if (const auto layers = config_.get_array("attn_layer_idx"); layers && !layers->empty()) {
      fail(ErrorCode::kUnsupported,
           "{}: field 'attn_layer_idx': attention layers are not supported", config_.name());
    }
    if (config_.get_int("d_intermediate").value_or(0) > 0) {
      fail(ErrorCode::kUnsupported, "{}: field 'd_intermediate': MLP layers are not supported",
           config_.name());
    }
    if (checkpoint_.dialect() == Dialect::kStateSpaces &&
        !config_.get_bool("rms_norm").value_or(true)) {
      fail(ErrorCode::kUnsupported, "{}: field 'rms_norm' is false: LayerNorm is not supported",
           config_.name());
    }
  }

  // Tensors decide: x_proj belongs to Mamba-1, dt_bias to Mamba-2, B_bias to Mamba-3.
  void detect_family() {
    const auto has = [&](string_view suffix) {
      return checkpoint_.find(names_.layer(0, suffix)) != nullptr;
    };
    if (has("mixer.B_bias")) {
      fail(ErrorCode::kUnsupported, "{}: Mamba-3 checkpoints are not supported",
           checkpoint_.path());
    }
    if (has("mixer.x_proj.weight")) {
      out_.mixer = MixerKind::kMamba1;
      out_.family = "mamba";
    } else if (has("mixer.dt_bias")) {
      out_.mixer = MixerKind::kMamba2;
      out_.family = "mamba2";
    } else {
      bad_input(
          "{}: expected a tensor '{}' (Mamba-1) or '{}' (Mamba-2), got neither; not a Mamba "
          "checkpoint",
          checkpoint_.path(), names_.layer(0, "mixer.x_proj.weight"),
          names_.layer(0, "mixer.dt_bias"));
    }
    if (!architecture_.empty() && architecture_ != out_.family) {
      bad_input("{}: key 'general.architecture' is '{}', but the tensors are those of {}",
                config_.name(), architecture_, out_.family);
    }
    if (config_.get_bool(arch_key("ssm.dt_b_c_rms")).value_or(false)) {
      out_.family = "falcon_mamba";
      // GGUF has no key for this epsilon, so Adder writes one of its own. llama.cpp takes that of
      // the other norms.
      out_.bcdt_rms_eps = read_eps("adder.mixer_rms_eps", 1e-6);
    }
    if (config_.get_string("model_type").value_or("") == "falcon_mamba") {
      if (out_.mixer != MixerKind::kMamba1) {
        bad_input("{}: model_type is 'falcon_mamba', but the tensors are Mamba-2's",
                  config_.name());
      }
      out_.family = "falcon_mamba";
      out_.bcdt_rms_eps = read_eps("mixer_rms_eps", 1e-6);
    }
  }

  float read_eps(string_view field, double otherwise) const {
    const double eps = config_.get_number(field).value_or(otherwise);
    if (!(eps >= 0.0 && eps < 1.0)) {
      bad_input("{}: field '{}': expected a number in [0, 1), got {}", config_.name(), field, eps);
    }
    return static_cast<float>(eps);
  }

  void read_vocabulary() {
    const StoredTensor& embedding = need(names_.embedding, 2);
    out_.vocab_rows = embedding.shape[0];
    out_.d_model = embedding.shape[1];
    agree("d_model", first_int(config_, {"hidden_size", "dim"}), names_.embedding, out_.d_model);
    agree("d_model", config_.get_int("d_model"), names_.embedding, out_.d_model);
    agree_arch("embedding_length", names_.embedding, out_.d_model);
    const int64_t declared =
        first_int(config_, {"adder.vocab_size", "vocab_size"}).value_or(out_.vocab_rows);
    if (declared <= 0 || declared > out_.vocab_rows) {
      bad_input("{}: field 'vocab_size' is {}, but tensor '{}' has {} rows", config_.name(),
                declared, names_.embedding, out_.vocab_rows);
    }
    // Rows are rounded up to a multiple of 8 or 16; much more than that is another model's config.
    const int64_t multiple = config_.get_int("pad_vocab_size_multiple").value_or(64);
    if (out_.vocab_rows - declared >= std::max<int64_t>(multiple, 64)) {
      bad_input("{}: field 'vocab_size' is {}, but tensor '{}' has {} rows", config_.name(),
                declared, names_.embedding, out_.vocab_rows);
    }
    out_.vocab_size = declared;
    const StoredTensor* head = checkpoint_.find(names_.lm_head);
    if (head != nullptr && head->shape != embedding.shape) {
      bad_input("{}: tensor '{}': expected the shape of '{}'", head->file, names_.lm_head,
                names_.embedding);
    }
    const auto tied = config_.get_bool("tie_embeddings");
    const bool says_tied = tied ? *tied : config_.get_bool("tie_word_embeddings").value_or(true);
    if (head == nullptr && !says_tied) {
      bad_input("{}: the config says that the head is not tied, but tensor '{}' is missing",
                checkpoint_.path(), names_.lm_head);
    }
    out_.tied_head = head == nullptr || head->data == embedding.data;
  }

  void count_layers() {
    int64_t n = 0;
    while (checkpoint_.find(names_.layer(n, "norm.weight")) != nullptr) ++n;
    if (n == 0) {
      bad_input("{}: tensor '{}' is missing", checkpoint_.path(), names_.layer(0, "norm.weight"));
    }
    const string last = names_.layer(n - 1, "norm.weight");
    const optional<int64_t> hf = config_.get_int("num_hidden_layers");
    if (hf && *hf > n) {
      bad_input("{}: tensor '{}' is missing (field 'num_hidden_layers' is {})", checkpoint_.path(),
                names_.layer(n, "norm.weight"), *hf);
    }
    agree("num_hidden_layers", hf, last, n);
    agree("n_layer", first_int(config_, {"n_layer", "n_layers"}), last, n);
    agree_arch("block_count", last, n);
    out_.n_layer = n;
  }

  optional<int64_t> ssm_or_top(string_view ssm_key, std::initializer_list<string_view> keys) const {
    if (const auto value = ssm_cfg_.get_int(ssm_key)) return value;
    return first_int(config_, keys);
  }

  void read_conv() {
    const StoredTensor& conv = need_layer0("mixer.conv1d.weight", 3);
    out_.d_conv = conv.shape[2];
    if (conv.shape[1] != 1 || out_.d_conv < 2 || out_.d_conv > 64) {
      bad_input("{}: tensor '{}': expected (channels, 1, 2..64), got ({}, {}, {})", conv.file,
                conv.name, conv.shape[0], conv.shape[1], conv.shape[2]);
    }
    agree("d_conv", ssm_or_top("d_conv", {"conv_kernel", "d_conv"}), conv.name, out_.d_conv);
    agree_arch("ssm.conv_kernel", conv.name, out_.d_conv);
  }

  void check_d_inner(const string& tensor) const {
    agree_arch("ssm.inner_size", tensor, out_.d_inner);
    // intermediate_size rules where both are present: falcon-mamba-7b says "expand": 16 and
    // means 2.
    if (const auto direct = first_int(config_, {"intermediate_size", "d_inner"})) {
      agree("intermediate_size", direct, tensor, out_.d_inner);
    } else if (const auto expand = ssm_or_top("expand", {"expand"})) {
      if (out_.d_inner % out_.d_model != 0 || *expand != out_.d_inner / out_.d_model) {
        bad_input("{}: field 'expand' is {} with d_model {}, but tensor '{}' says d_inner {}",
                  config_.name(), *expand, out_.d_model, tensor, out_.d_inner);
      }
    }
  }

  void read_mamba1() {
    const StoredTensor& a = need_layer0("mixer.A_log", 2);
    const StoredTensor& dt = need_layer0("mixer.dt_proj.weight", 2);
    out_.d_inner = a.shape[0];
    out_.d_state = a.shape[1];
    out_.dt_rank = dt.shape[1];
    read_conv();
    check_d_inner(a.name);
    agree("d_state", ssm_or_top("d_state", {"state_size", "d_state"}), a.name, out_.d_state);
    agree_arch("ssm.state_size", a.name, out_.d_state);
    agree_arch("ssm.time_step_rank", dt.name, out_.dt_rank);
    const auto rank_of = [&](const JsonValue& from, string_view key) -> optional<int64_t> {
      const auto value = from.get(key);
      if (!value || (value->is_string() && value->as_string() == "auto")) return std::nullopt;
      return from.get_int(key);
    };
    for (string_view key : {"time_step_rank", "dt_rank"}) {
      agree(key, rank_of(config_, key), dt.name, out_.dt_rank);
    }
    agree("ssm_cfg.dt_rank", rank_of(ssm_cfg_, "dt_rank"), dt.name, out_.dt_rank);
  }

  void read_mamba2() {
    const StoredTensor& a = need_layer0("mixer.A_log", 1);
    const StoredTensor& out_proj = need_layer0("mixer.out_proj.weight", 2);
    const StoredTensor& in_proj = need_layer0("mixer.in_proj.weight", 2);
    const StoredTensor& conv = need_layer0("mixer.conv1d.weight", 3);
    out_.n_heads = a.shape[0];
    out_.d_inner = out_proj.shape[1];
    if (out_.d_inner % out_.n_heads != 0) {
      bad_input("{}: tensor '{}': {} heads do not divide d_inner {} of '{}'", a.file, a.name,
                out_.n_heads, out_.d_inner, out_proj.name);
    }
    out_.headdim = out_.d_inner / out_.n_heads;
    // The tensors know n_groups * d_state only; d_state itself is the config's, 128 by default.
    out_.d_state = ssm_or_top("d_state", {"state_size", "d_state"})
                       .value_or(config_.get_int(arch_key("ssm.state_size")).value_or(128));
    const int64_t both = conv.shape[0] - out_.d_inner;
    if (both <= 0 || out_.d_state <= 0 || out_.d_state > both || both % (2 * out_.d_state) != 0) {
      bad_input("{}: field 'd_state' is {}, but tensor '{}' has {} rows beyond d_inner {}",
                config_.name(), out_.d_state, conv.name, both, out_.d_inner);
    }
    out_.n_groups = both / (2 * out_.d_state);
    if (out_.n_heads % out_.n_groups != 0) {
      bad_input("{}: {} groups (from tensor '{}') do not divide {} heads", config_.name(),
                out_.n_groups, conv.name, out_.n_heads);
    }
    if (in_proj.shape[0] > out_.in_proj_rows() && ssm_cfg_.has("d_ssm")) {
      fail(ErrorCode::kUnsupported,
           "{}: field 'ssm_cfg.d_ssm': a gated MLP beside the SSM is not supported",
           config_.name());
    }
    read_conv();
    check_d_inner(out_proj.name);
    agree("num_heads", config_.get_int("num_heads"), a.name, out_.n_heads);
    agree("headdim", ssm_or_top("headdim", {"head_dim"}), a.name, out_.headdim);
    agree("n_groups", ssm_or_top("ngroups", {"n_groups"}), conv.name, out_.n_groups);
    agree_arch("ssm.time_step_rank", a.name, out_.n_heads);
    agree_arch("ssm.group_count", conv.name, out_.n_groups);
    read_dt_limit();
  }

  void read_dt_limit() {
    auto limit = ssm_cfg_.get_array("dt_limit");
    if (!limit) limit = config_.get_array("time_step_limit");
    if (limit && limit->size() != 2) {
      bad_input("{}: field 'time_step_limit': expected 2 numbers, got {}", config_.name(),
                limit->size());
    }
    if (limit) {
      out_.dt_min = static_cast<float>((*limit)[0].as_number());
      out_.dt_max = static_cast<float>((*limit)[1].as_number());
    }
    // GGUF has no such key, and JSON no Infinity: Adder writes two keys of its own.
    if (const auto min = config_.get_number("adder.time_step_min")) {
      out_.dt_min = static_cast<float>(*min);
    }
    if (const auto max = config_.get_number("adder.time_step_max")) {
      out_.dt_max = static_cast<float>(*max);
    }
    if (!(out_.dt_min >= 0.0f && out_.dt_min <= out_.dt_max)) {
      bad_input("{}: field 'time_step_limit': expected 0 <= min <= max, got [{}, {}]",
                config_.name(), out_.dt_min, out_.dt_max);
    }
  }

  void read_norms() {
    out_.norm_eps = read_eps(
        architecture_.empty() ? "layer_norm_epsilon" : arch_key("attention.layer_norm_rms_epsilon"),
        1e-5);
    out_.gated_norm = checkpoint_.find(names_.layer(0, "mixer.norm.weight")) != nullptr;
    out_.norm_before_gate = config_.get_bool("adder.norm_before_gate").value_or(false);
    if (checkpoint_.dialect() == Dialect::kStateSpaces) {
      out_.norm_before_gate = ssm_cfg_.get_bool("norm_before_gate").value_or(false);
    } else if (config_.get_bool("norm_before_gate").value_or(false)) {
      // Codestral's config says true; its published outputs come from code that gates first.
      out_.warnings.push_back(
          "norm_before_gate is true in the config and not honoured, as upstream");
    }
  }

  void read_tokens() {
    if (const auto eos = config_.get_int("tokenizer.ggml.eos_token_id")) add_eos(*eos);
    if (const auto eos = config_.get("eos_token_id")) {
      if (eos->is_array()) {
        const std::vector<JsonValue> ids = *config_.get_array("eos_token_id");
        for (const JsonValue& id : ids) add_eos(id.as_int());
      } else if (const auto id = config_.get_int("eos_token_id")) {
        add_eos(*id);
      }
    }
    if (const auto bos = first_int(config_, {"bos_token_id", "tokenizer.ggml.bos_token_id"});
        bos && *bos >= 0 && *bos < out_.vocab_rows) {
      out_.bos_id = static_cast<int32_t>(*bos);
    }
    // max_position_embeddings and the like are bounds of other architectures; only a field that is
    // about training is believed.
    out_.trained_length = first_int(config_, {"max_seq_len", "seq_len", "train_length"});
  }

  void add_eos(int64_t id) {
    if (id >= 0 && id < out_.vocab_rows) out_.eos_ids.push_back(static_cast<int32_t>(id));
  }

  const Checkpoint& checkpoint_;
  const JsonValue& config_;
  JsonValue ssm_cfg_;
  string architecture_;  // of a GGUF file, else empty
  TensorNames names_;
  ModelConfig out_;
};

}  // namespace

ModelConfig derive_config(const Checkpoint& checkpoint) {
  return ConfigReader(checkpoint).read();
}

}  // namespace adder
