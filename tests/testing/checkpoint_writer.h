// Tiny checkpoints with random weights, in every dialect, that tests can spoil.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "io/io_testing.h"
#include "testing/inputs.h"

namespace adder::testing {

struct TestTensor {
  std::string dtype = "F32";  // as safetensors spells it
  std::vector<int64_t> shape;
  std::string bytes;

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
};
using TestTensors = std::map<std::string, TestTensor>;

inline TestTensor f32_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  TestTensor t{"F32", std::move(shape), {}};
  t.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return t;
}

inline float value_at(const TestTensor& t, int64_t i) {
  float value = 0;
  std::memcpy(&value, t.bytes.data() + i * 4, 4);
  return value;
}
inline void set_value(TestTensor& t, int64_t i, float value) {
  std::memcpy(t.bytes.data() + i * 4, &value, 4);
}

// A float16 close to `value` (cut, not rounded; below 2^-14 it is zero): test weights need no more.
inline uint16_t cut_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto exponent = static_cast<int32_t>((bits >> 23) & 0xff) - 112;
  const uint32_t sign = (bits >> 16) & 0x8000;
  if (exponent <= 0 || exponent > 30) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 |
                               ((bits >> 13) & 0x3ff));
}

// The same values in 16 bits.
inline TestTensor in_16_bits(const TestTensor& t, DType dtype) {
  TestTensor out{dtype == DType::kBF16 ? "BF16" : "F16", t.shape, {}};
  for (int64_t i = 0; i < t.size(); ++i) {
    const float v = value_at(t, i);
    put(out.bytes, dtype == DType::kBF16 ? f32_to_bf16(v) : cut_to_f16(v), 2);
  }
  return out;
}

struct ModelShape {
  bool mamba2 = false;
  int64_t n_layer = 2, d_model = 16, d_inner = 32, d_state = 8, d_conv = 4;
  int64_t dt_rank = 2;                // Mamba-1
  int64_t n_heads = 4, n_groups = 1;  // Mamba-2
  int64_t vocab_rows = 64;
  bool lm_head = false;
  std::string prefix = "backbone.", embedding = "backbone.embeddings.weight",
              head = "lm_head.weight";
};

// Names and shapes of a model's tensors.
inline std::map<std::string, std::vector<int64_t>> tensor_shapes(const ModelShape& m) {
  std::map<std::string, std::vector<int64_t>> shapes;
  shapes[m.embedding] = {m.vocab_rows, m.d_model};
  if (m.lm_head) shapes[m.head] = {m.vocab_rows, m.d_model};
  shapes[m.prefix + "norm_f.weight"] = {m.d_model};
  const int64_t e = m.d_inner;
  const int64_t channels = m.mamba2 ? e + 2 * m.n_groups * m.d_state : e;
  for (int64_t i = 0; i < m.n_layer; ++i) {
    const std::string layer = m.prefix + "layers." + std::to_string(i) + ".";
    shapes[layer + "norm.weight"] = {m.d_model};
    shapes[layer + "mixer.conv1d.weight"] = {channels, 1, m.d_conv};
    shapes[layer + "mixer.conv1d.bias"] = {channels};
    shapes[layer + "mixer.out_proj.weight"] = {m.d_model, e};
    if (m.mamba2) {
      shapes[layer + "mixer.in_proj.weight"] = {e + channels + m.n_heads, m.d_model};
      for (const char* name : {"mixer.dt_bias", "mixer.A_log", "mixer.D"}) {
        shapes[layer + name] = {m.n_heads};
      }
      shapes[layer + "mixer.norm.weight"] = {e};
    } else {
      shapes[layer + "mixer.in_proj.weight"] = {2 * e, m.d_model};
      shapes[layer + "mixer.x_proj.weight"] = {m.dt_rank + 2 * m.d_state, e};
      shapes[layer + "mixer.dt_proj.weight"] = {e, m.dt_rank};
      shapes[layer + "mixer.dt_proj.bias"] = {e};
      shapes[layer + "mixer.A_log"] = {e, m.d_state};
      shapes[layer + "mixer.D"] = {e};
    }
  }
  return shapes;
}

inline TestTensors random_tensors(const ModelShape& m, uint64_t seed = 1) {
  Rng rng(seed);
  TestTensors tensors;
  for (const auto& [name, shape] : tensor_shapes(m)) {
    TestTensor t{"F32", shape, {}};
    auto values = rng.normals(t.size(), 0.3f);
    if (name.ends_with("norm.weight") || name.ends_with("norm_f.weight")) {
      for (float& v : values) v += 1;
    }
    tensors[name] = f32_tensor(shape, values);
  }
  return tensors;
}

// A Hugging Face config that agrees with the shape.
inline nlohmann::json hugging_face_config(const ModelShape& m) {
  nlohmann::json c = {{"model_type", m.mamba2 ? "mamba2" : "mamba"},
                      {"hidden_size", m.d_model},
                      {"num_hidden_layers", m.n_layer},
                      {"state_size", m.d_state},
                      {"conv_kernel", m.d_conv},
                      {"intermediate_size", m.d_inner},
                      {"vocab_size", m.vocab_rows},
                      {"tie_word_embeddings", !m.lm_head},
                      {"eos_token_id", 0}};
  if (m.mamba2) {
    c["num_heads"] = m.n_heads;
    c["head_dim"] = m.d_inner / m.n_heads;
    c["n_groups"] = m.n_groups;
  } else {
    c["time_step_rank"] = m.dt_rank;
  }
  return c;
}

// The header of a safetensors file of tensors that lie one after another; `bytes` becomes the size
// of the data.
template <typename Map, typename Describe>
std::string safetensors_header(const Map& tensors, Describe&& describe, int64_t* bytes) {
  nlohmann::json header = nlohmann::json::object();
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto [dtype, shape, size] = describe(tensor);
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {at, at + size}}};
    at += size;
  }
  *bytes = at;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // as writers do: data of odd offsets is copied
  return text;
}

inline std::string safetensors_image(const TestTensors& tensors) {
  int64_t bytes = 0;
  const std::string header = safetensors_header(
      tensors,
      [](const TestTensor& t) {
        return std::tuple(t.dtype, t.shape, static_cast<int64_t>(t.bytes.size()));
      },
      &bytes);
  std::string data;
  for (const auto& [name, t] : tensors) data += t.bytes;
  return safetensors(header, data);
}

}  // namespace adder::testing
