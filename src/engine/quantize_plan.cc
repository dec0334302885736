#include "engine/quantize_plan.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "io/tensor_values.h"

namespace adder {
namespace {

struct Part {
  std::string_view suffix;
  TensorRole role;
};

// In the order of the forward pass. Mamba-2's dt rows come with its in_proj.
constexpr Part kLayerParts[] = {
    {"norm.weight", TensorRole::kExact},
    {"mixer.in_proj.weight", TensorRole::kMatrix},
    {"mixer.in_proj.bias", TensorRole::kExact},
    {"mixer.conv1d.weight", TensorRole::kExact},
    {"mixer.conv1d.bias", TensorRole::kExact},
    {"mixer.x_proj.weight", TensorRole::kSensitive},
    {"mixer.dt_proj.weight", TensorRole::kSensitive},
    {"mixer.dt_proj.bias", TensorRole::kExact},
    {"mixer.dt_bias", TensorRole::kExact},
    {"mixer.A_log", TensorRole::kExact},
    {"mixer.D", TensorRole::kExact},
    {"mixer.norm.weight", TensorRole::kExact},
    {"mixer.out_proj.weight", TensorRole::kMatrix},
    {"mixer.out_proj.bias", TensorRole::kExact},
};

bool is_four_bit(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_K;
}

bool is_whole(DType type, int64_t columns) {
  return columns % block_shape(type).elements == 0;
}

float negative_exp(float a_log) {
  return static_cast<float>(-std::exp(static_cast<double>(a_log)));
}

float log_negative(float a) {
  return static_cast<float>(std::log(-static_cast<double>(a)));
}

TensorNames names_of(const PlanOptions& options, const TensorNames& from) {
  if (options.names == PlanNames::kGguf) return gguf_names();
  return options.names == PlanNames::kHuggingFace ? hugging_face_names() : from;
}

// Reads the whole tensor: asked only of the few that no block format suits.
bool fits_f16(const StoredTensor& t) {
  const int64_t columns = t.shape.back();
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t i = 0; i < t.size(); i += columns) {
    read_values(t, i, row);
    for (const float v : row)
      if (std::abs(v) >= 65520.0f) return false;  // from here on it rounds to Inf
  }
  return true;
}

class Planner {
 public:
  Planner(const Checkpoint& source, const ModelConfig& config, const PlanOptions& options)
      : source_(source),
        config_(config),
        options_(options),
        from_(tensor_names(source)),
        to_(names_of(options, from_)),
        gguf_(options.names == PlanNames::kGguf) {}

  std::vector<PlannedTensor> plan() {
    const StoredTensor* embedding = source_.find(from_.embedding);
    add(embedding, to_.embedding, TensorRole::kMatrix);
    const StoredTensor* head = source_.find(from_.lm_head);
    // Without a head a GGUF file is tied; elsewhere the config tells.
    if (head != nullptr && !config_.tied_head && !(gguf_ && same_data(*head, *embedding)))
      add(head, to_.lm_head, TensorRole::kMatrix);
    add(source_.find(from_.norm_f), to_.norm_f, TensorRole::kExact);
    for (int64_t i = 0; i < config_.n_layer; ++i)
      for (const Part& part : kLayerParts) add_part(i, part);
    return std::move(planned_);
  }

 private:
  static bool same_data(const StoredTensor& a, const StoredTensor& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.is_contiguous() && b.is_contiguous() &&
           std::memcmp(a.data, b.data, row_bytes(a.dtype, a.size())) == 0;
  }

  PlannedTensor& add(const StoredTensor* source, const std::string& name, TensorRole role) {
    PlannedTensor& p = planned_.emplace_back();
    p.name = name;
    p.source = source;
    p.shape = source->shape;
    if (!options_.type) {
      const bool keeps = role != TensorRole::kExact && (gguf_ || !is_quantized(source->dtype));
      p.dtype = keeps ? source->dtype : DType::kF32;
      return p;
    }
    p.dtype = stored_dtype(role, *options_.type, source->shape.back());
    if (p.dtype == DType::kF16 && *options_.type != DType::kF16 && !fits_f16(*source))
      p.dtype = DType::kF32;
    return p;
  }

  void add_part(int64_t layer, const Part& part) {
    const bool mamba2 = config_.mixer == MixerKind::kMamba2;
    // GGUF has one name for the two.
    if (part.suffix == (mamba2 ? "mixer.dt_proj.bias" : "mixer.dt_bias")) return;
    // Without a mixer level this is the block's own norm.
    if (!mamba2 && part.suffix == "mixer.norm.weight") return;
    const StoredTensor* t = source_.find(from_.layer(layer, part.suffix));
    if (t == nullptr) return;  // optional, or the other mixer's
    if (mamba2 && part.suffix == "mixer.in_proj.weight") return add_in_proj(layer, *t);
    PlannedTensor& p = add(t, to_.layer(layer, part.suffix), part.role);
    const bool from_gguf = source_.dialect() == Dialect::kGguf;
    if (part.suffix == "mixer.A_log" && gguf_ != from_gguf) {
      p.map = gguf_ ? negative_exp : log_negative;
    }
    if (gguf_) shape_for_gguf(p, part.suffix, mamba2);
  }

  // Mamba-2's, whose dt rows, the last ones, may be a tensor of their own in source and output.
  void add_in_proj(int64_t layer, const StoredTensor& in_proj) {
    const StoredTensor* dt = source_.find(from_.layer(layer, "mixer.in_proj_dt.weight"));
    const std::string name = to_.layer(layer, "mixer.in_proj.weight"),
                      dt_name = to_.layer(layer, "mixer.in_proj_dt.weight");
    const bool apart = options_.type ? is_four_bit(*options_.type) && !options_.llama_compatible
                                     : dt != nullptr && dt->dtype != in_proj.dtype;
    PlannedTensor& p = add(&in_proj, name, TensorRole::kMatrix);
    if (gguf_ && apart && dt != nullptr) {
      add(dt, dt_name, TensorRole::kSensitive);
    } else if (gguf_ && apart) {
      p.shape[0] -= config_.n_heads;
      const int64_t first_row = p.shape[0];  // p does not outlive the next add
      PlannedTensor& rows = add(&in_proj, dt_name, TensorRole::kSensitive);
      rows.first_row = first_row;
      rows.shape[0] = config_.n_heads;
    } else if (dt != nullptr) {
      p.rest = dt;
      p.shape[0] += config_.n_heads;
      if (!options_.type && dt->dtype != in_proj.dtype) p.dtype = DType::kF32;
    }
  }

  void shape_for_gguf(PlannedTensor& p, std::string_view suffix, bool mamba2) const {
    if (suffix == "mixer.conv1d.weight") p.shape = {p.shape[0], p.shape[2]};
    if (!mamba2) return;
    if (suffix == "mixer.A_log" || suffix == "mixer.D") p.shape = {p.source->size(), 1};
    if (suffix == "mixer.norm.weight")
      p.shape = {config_.n_groups, config_.d_inner / config_.n_groups};
  }

  const Checkpoint& source_;
  const ModelConfig& config_;
  const PlanOptions& options_;
  TensorNames from_, to_;
  bool gguf_;  // what is written
  std::vector<PlannedTensor> planned_;
};

}  // namespace

DType stored_dtype(TensorRole role, DType asked, int64_t columns) {
  if (role == TensorRole::kExact) return DType::kF32;
  DType type = asked;
  if (role == TensorRole::kSensitive && is_four_bit(type)) type = DType::kQ8_0;
  if (!is_whole(type, columns) && type == DType::kQ4_K) type = DType::kQ8_0;
  if (!is_whole(type, columns)) type = DType::kF16;
  return type;
}

DType type_for_model(DType asked, const ModelConfig& config) {
  return asked == DType::kQ4_K && !is_whole(asked, config.d_model) ? DType::kQ8_0 : asked;
}

std::vector<PlannedTensor> plan_tensors(const Checkpoint& source, const ModelConfig& config,
                                        const PlanOptions& options) {
  PlanOptions for_model = options;
  if (options.type) for_model.type = type_for_model(*options.type, config);
  return Planner(source, config, for_model).plan();
}

}  // namespace adder
