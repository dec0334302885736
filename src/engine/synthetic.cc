#include "engine/synthetic.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <span>

#include "core/buffer.h"
#include "core/error.h"
#include "core/quant.h"
#include "core/random.h"
#include "engine/quantize_plan.h"

namespace adder {
namespace {

struct TypeName {
  std::string_view name;
  DType type;
};
constexpr TypeName kSynthesizedTypes[] = {{"f32", DType::kF32},   {"f16", DType::kF16},
                                          {"bf16", DType::kBF16}, {"q8_0", DType::kQ8_0},
                                          {"q4_0", DType::kQ4_0}, {"q4_k", DType::kQ4_K}};

const std::vector<SyntheticShape>& published_shapes() {
  constexpr auto kM1 = MixerKind::kMamba1, kM2 = MixerKind::kMamba2;
  static const std::vector<SyntheticShape> shapes = {
      {"mamba-130m", kM1, 24, 768, 16, 50280},
      {"mamba-370m", kM1, 48, 1024, 16, 50280},
      {"mamba-790m", kM1, 48, 1536, 16, 50280},
      {"mamba-1.4b", kM1, 48, 2048, 16, 50280},
      {"mamba-2.8b", kM1, 64, 2560, 16, 50280},
      {"mamba2-130m", kM2, 24, 768, 128, 50288},
      {"mamba2-370m", kM2, 48, 1024, 128, 50288},
      {"mamba2-780m", kM2, 48, 1536, 128, 50288},
      {"mamba2-1.3b", kM2, 48, 2048, 128, 50288},
      {"mamba2-2.7b", kM2, 64, 2560, 128, 50288},
      {"falcon-mamba-7b", kM1, 64, 4096, 16, 65024, true}};
  return shapes;
}

constexpr int64_t kHeaddim = 64;
constexpr int64_t kConv = 4;

enum class Fill { kNormal, kEmbedding, kConstant, kTimeStep, kDecayLog };

struct Plan {
  std::string name;
  std::vector<int64_t> shape;
  Fill fill;
  float scale;  // standard deviation, or the constant
  DType dtype;

  int64_t size() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  size_t bytes() const { return row_bytes(dtype, size()); }
};

size_t padded(size_t bytes) {
  constexpr size_t kAlign = 64;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

std::vector<Plan> plan_synthetic(const SyntheticShape& s, DType type) {
  const int64_t d = s.d_model, e = 2 * d, n = s.d_state;
  const auto inverse_root = [](int64_t k) { return 1.0f / std::sqrt(static_cast<float>(k)); };
  std::vector<Plan> plan;
  const auto matrix = [&](std::string name, int64_t rows, int64_t columns, float scale,
                          bool sensitive = false, Fill fill = Fill::kNormal) {
    plan.push_back(
        {std::move(name),
         {rows, columns},
         fill,
         scale,
         stored_dtype(sensitive ? TensorRole::kSensitive : TensorRole::kMatrix, type, columns)});
  };
  constexpr float kEmbeddingScale = 0.02f;
  const auto embedding = [&](std::string name) {
    matrix(std::move(name), s.vocab, d, kEmbeddingScale, false, Fill::kEmbedding);
  };
  const auto small = [&](std::string name, std::vector<int64_t> shape, Fill fill, float scale = 0) {
    plan.push_back({std::move(name), std::move(shape), fill, scale, DType::kF32});
  };

  embedding("backbone.embeddings.weight");
  for (int64_t i = 0; i < s.n_layer; ++i) {
    const std::string layer = fmt::format("backbone.layers.{}.", i), mixer = layer + "mixer.";
    small(layer + "norm.weight", {d}, Fill::kConstant, 1);
    if (s.mixer == MixerKind::kMamba1) {
      const int64_t r = (d + 15) / 16;
      matrix(mixer + "in_proj.weight", 2 * e, d, inverse_root(d));
      small(mixer + "conv1d.weight", {e, 1, kConv}, Fill::kNormal, 0.3f);
      small(mixer + "conv1d.bias", {e}, Fill::kNormal, 0.1f);
      matrix(mixer + "x_proj.weight", r + 2 * n, e, inverse_root(e), true);
      matrix(mixer + "dt_proj.weight", e, r, inverse_root(r), true);
      small(mixer + "dt_proj.bias", {e}, Fill::kTimeStep);
      small(mixer + "A_log", {e, n}, Fill::kDecayLog);
      small(mixer + "D", {e}, Fill::kConstant, 1);
    } else {
      const int64_t heads = e / kHeaddim, channels = e + 2 * n;
      // As `adder quantize` does: dt keeps 8 bits, in a tensor of its own.
      const bool apart = type == DType::kQ4_0 || type == DType::kQ4_K;
      const int64_t dt_rows = apart ? heads : 0;
      matrix(mixer + "in_proj.weight", e + channels + heads - dt_rows, d, inverse_root(d));
      if (apart) matrix(mixer + "in_proj_dt.weight", dt_rows, d, inverse_root(d), true);
      small(mixer + "conv1d.weight", {channels, 1, kConv}, Fill::kNormal, 0.3f);
      small(mixer + "conv1d.bias", {channels}, Fill::kNormal, 0.1f);
      small(mixer + "dt_bias", {heads}, Fill::kTimeStep);
      small(mixer + "A_log", {heads}, Fill::kDecayLog);
      small(mixer + "D", {heads}, Fill::kConstant, 1);
      small(mixer + "norm.weight", {e}, Fill::kConstant, 1);
    }
    matrix(mixer + "out_proj.weight", d, e, inverse_root(e) * inverse_root(s.n_layer));
  }
  // Logits of standard deviation 3, as trained models have them: a sampler's work depends on that.
  small("backbone.norm_f.weight", {d}, Fill::kConstant, 3 / kEmbeddingScale * inverse_root(d));
  if (s.falcon) embedding("lm_head.weight");
  return plan;
}

std::string config_text(const SyntheticShape& s) {
  std::string text = fmt::format(
      R"({{"model_type": "{}", "hidden_size": {}, "num_hidden_layers": {}, "vocab_size": {},
           "conv_kernel": {}, "layer_norm_epsilon": 1e-5, "state_size": {}, "expand": 2,
           "tie_word_embeddings": {})",
      s.falcon                        ? "falcon_mamba"
      : s.mixer == MixerKind::kMamba1 ? "mamba"
                                      : "mamba2",
      s.d_model, s.n_layer, s.vocab, kConv, s.d_state, !s.falcon);
  if (s.mixer == MixerKind::kMamba2) {
    text += fmt::format(R"(, "head_dim": {}, "num_heads": {}, "n_groups": 1)", kHeaddim,
                        2 * s.d_model / kHeaddim);
  }
  return text + "}";
}

// Writes n values that are close to normal, with variance 1: the sum of four uniform numbers of 16
// bits each.
void draw(uint64_t seed, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mix64(mix64(seed) + 0x9e3779b97f4a7c15ull * (i + 1));
    float sum = 0;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<float>(bits >> (16 * part) & 0xffff) * 0x1p-16f;
    }
    out[i] = (sum - 2.0f) * std::sqrt(3.0f);
  }
}

// Random values are drawn once, rounded once for each type and scale, and repeated. The length is a
// whole number of blocks of any type, and a prime of them, so that neighbouring rows differ.
class Tiles {
 public:
  static constexpr int64_t kElements = 256 * 2039;

  Tiles() : scaled_(kElements) {}

  void fill(DType type, float scale, std::span<std::byte> out) {
    std::vector<std::byte>& tile = tiles_[{type, scale}];
    if (tile.empty()) {
      tile.resize(row_bytes(type, kElements));
      draw_tile(0, type, scale, tile);
    }
    repeat(tile, out);
  }

  // Without repetition for the first 2^24 elements or so: equal rows of the head would be equal
  // logits, and a sampler would see more ties than it ever does.
  void fill_embedding(DType type, float scale, std::span<std::byte> out) {
    constexpr uint64_t kTiles = 32;
    const size_t tile = row_bytes(type, kElements);
    const size_t fresh = std::min(out.size(), kTiles * tile);
    for (size_t at = 0, seed = 1; at < fresh; at += tile, ++seed) {
      draw_tile(seed, type, scale, out.subspan(at, std::min(tile, fresh - at)));
    }
    repeat(out.first(fresh), out.subspan(fresh));
  }

 private:
  // `out` is whole blocks, a tile at most.
  void draw_tile(uint64_t seed, DType type, float scale, std::span<std::byte> out) {
    const BlockShape block = block_shape(type);
    const size_t n = out.size() / block.bytes * static_cast<size_t>(block.elements);
    const auto values = std::span(scaled_).first(n);
    draw(seed, values);
    for (float& v : values) v *= scale;
    quantize_row(type, values, {}, out.data());
  }

  static void repeat(std::span<const std::byte> tile, std::span<std::byte> out) {
    while (!out.empty()) {
      const size_t n = std::min(out.size(), tile.size());
      std::memcpy(out.data(), tile.data(), n);
      out = out.subspan(n);
    }
  }

  std::vector<float> scaled_;
  std::map<std::pair<DType, float>, std::vector<std::byte>> tiles_;
};

void fill_small(const Plan& plan, std::span<float> out) {
  const int64_t columns = plan.shape.size() == 2 ? plan.shape[1] : 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const float uniform = uniform_at(7, i);
    switch (plan.fill) {
      case Fill::kConstant:
        out[i] = plan.scale;
        break;
      case Fill::kTimeStep: {  // softplus^-1 of a step between 0.001 and 0.1, uniform in the log
        const float dt = 0.001f * std::pow(100.0f, uniform);
        out[i] = dt + std::log(-std::expm1(-dt));
        break;
      }
      case Fill::kDecayLog:
        out[i] = columns > 0 ? std::log(static_cast<float>(static_cast<int64_t>(i) % columns + 1))
                             : std::log(1.0f + 15.0f * uniform);
        break;
      case Fill::kNormal:
      case Fill::kEmbedding:
        break;
    }
  }
}

}  // namespace

std::vector<std::string> synthetic_names() {
  std::vector<std::string> names;
  for (const SyntheticShape& shape : published_shapes()) names.push_back(shape.name);
  return names;
}

SyntheticShape synthetic_shape(std::string_view name) {
  for (const SyntheticShape& shape : published_shapes()) {
    if (shape.name == name) return shape;
  }
  bad_input("synthetic: expected one of {}, got '{}'", fmt::join(synthetic_names(), ", "), name);
}

std::vector<std::string> synthetic_type_names() {
  std::vector<std::string> names;
  for (const TypeName& type : kSynthesizedTypes) names.emplace_back(type.name);
  return names;
}

DType parse_weight_type(std::string_view name) {
  for (const TypeName& type : kSynthesizedTypes) {
    if (type.name == name) return type.type;
  }
  bad_input("type: expected one of {}, got '{}'", fmt::join(synthetic_type_names(), ", "), name);
}

uint64_t synthetic_bytes(const SyntheticShape& shape, DType type) {
  uint64_t total = 0;
  for (const Plan& plan : plan_synthetic(shape, type)) {
    total += plan.bytes();
  }
  return total;
}

Checkpoint make_synthetic(const SyntheticShape& shape, DType type, SyntheticMemory memory) {
  const std::vector<Plan> plans = plan_synthetic(shape, type);
  // Where each tensor begins; tensors of a later layer are found under the name in the first.
  std::map<std::string, size_t> places;
  const auto place_name = [&](const std::string& name) {
    constexpr std::string_view kLayers = "backbone.layers.";
    const bool shares = memory == SyntheticMemory::kShared && name.starts_with(kLayers);
    return shares ? name.substr(name.find('.', kLayers.size())) : name;
  };
  size_t total = 0;
  for (const Plan& plan : plans) {
    if (places.try_emplace(place_name(plan.name), total).second) total += padded(plan.bytes());
  }

  const auto owner = std::make_shared<Buffer>(allocate_host(total));
  auto* begin = static_cast<std::byte*>(owner->data());
  Tiles tiles;
  TensorFile file;
  size_t filled = 0;
  for (const Plan& plan : plans) {
    const size_t place = places.at(place_name(plan.name));
    std::byte* data = begin + place;
    file.tensors.push_back(
        {plan.name, shape.name, plan.dtype, plan.shape, contiguous_strides(plan.shape), data});
    if (place < filled) continue;
    filled = place + padded(plan.bytes());
    if (plan.fill == Fill::kNormal) {
      tiles.fill(plan.dtype, plan.scale, std::span(data, plan.bytes()));
    } else if (plan.fill == Fill::kEmbedding) {
      tiles.fill_embedding(plan.dtype, plan.scale, std::span(data, plan.bytes()));
    } else {
      fill_small(plan, std::span(reinterpret_cast<float*>(data), static_cast<size_t>(plan.size())));
    }
  }
  file.owners.push_back(owner);
  return Checkpoint::from_tensors(std::move(file), config_text(shape), shape.name);
}

}  // namespace adder
