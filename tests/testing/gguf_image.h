// The tiny random models of checkpoint_writer.h as GGUF images.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/quant.h"
#include "io/gguf_writer.h"
#include "testing/checkpoint_writer.h"

namespace adder::testing {

struct GgufTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// What a test may spoil before the file is written.
struct GgufModel {
  std::string architecture;
  std::map<std::string, int64_t> keys;  // written as u32
  std::map<std::string, GgufTensor> tensors;
  std::function<void(GgufWriter&)> more_keys = [](GgufWriter&) {};
};

inline std::string gguf_tensor_name(const ModelShape& m, const std::string& name) {
  if (name == m.embedding) return "token_embd.weight";
  if (name == m.head) return "output.weight";
  if (name == m.prefix + "norm_f.weight") return "output_norm.weight";
  const std::string rest = name.substr((m.prefix + "layers.").size());
  const size_t dot = rest.find('.');
  const std::string part = rest.substr(dot + 1);
  const std::map<std::string, std::string> names = {{"norm.weight", "attn_norm.weight"},
                                                    {"mixer.in_proj.weight", "ssm_in.weight"},
                                                    {"mixer.conv1d.weight", "ssm_conv1d.weight"},
                                                    {"mixer.conv1d.bias", "ssm_conv1d.bias"},
                                                    {"mixer.x_proj.weight", "ssm_x.weight"},
                                                    {"mixer.dt_proj.weight", "ssm_dt.weight"},
                                                    {"mixer.dt_proj.bias", "ssm_dt.bias"},
                                                    {"mixer.dt_bias", "ssm_dt.bias"},
                                                    {"mixer.A_log", "ssm_a"},
                                                    {"mixer.D", "ssm_d"},
                                                    {"mixer.norm.weight", "ssm_norm.weight"},
                                                    {"mixer.out_proj.weight", "ssm_out.weight"}};
  return "blk." + rest.substr(0, dot) + "." + names.at(part);
}

inline GgufModel gguf_model(const ModelShape& m, const TestTensors& tensors) {
  GgufModel model;
  const std::string arch = m.mamba2 ? "mamba2" : "mamba";
  model.architecture = arch;
  model.keys = {{arch + ".block_count", m.n_layer},
                {arch + ".embedding_length", m.d_model},
                {arch + ".ssm.conv_kernel", m.d_conv},
                {arch + ".ssm.inner_size", m.d_inner},
                {arch + ".ssm.state_size", m.d_state},
                {arch + ".ssm.time_step_rank", m.mamba2 ? m.n_heads : m.dt_rank}};
  if (m.mamba2) model.keys[arch + ".ssm.group_count"] = m.n_groups;
  for (const auto& [name, t] : tensors) {
    GgufTensor out{DType::kF32, t.shape, {}};
    for (int64_t i = 0; i < t.size(); ++i) out.values.push_back(value_at(t, i));
    if (name.ends_with("A_log")) {
      for (float& v : out.values) v = -std::exp(v);
    }
    if (name.ends_with("conv1d.weight")) out.shape = {t.shape[0], t.shape[2]};
    if (m.mamba2 && (name.ends_with("A_log") || name.ends_with("mixer.D"))) {
      out.shape = {t.shape[0], 1};
    }
    if (name.ends_with("mixer.norm.weight")) out.shape = {m.n_groups, m.d_inner / m.n_groups};
    model.tensors[gguf_tensor_name(m, name)] = std::move(out);
  }
  return model;
}

inline std::string gguf_image(const GgufModel& model) {
  std::string image;
  GgufWriter writer([&](std::span<const std::byte> bytes) {
    image.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  writer.add_string("general.architecture", model.architecture);
  for (const auto& [key, value] : model.keys) writer.add_u32(key, static_cast<uint32_t>(value));
  model.more_keys(writer);
  for (const auto& [name, t] : model.tensors) writer.declare(name, t.dtype, t.shape);
  for (const auto& [name, t] : model.tensors) {
    const auto columns = static_cast<size_t>(t.shape.back());
    std::vector<std::byte> row(row_bytes(t.dtype, t.shape.back()));
    for (size_t at = 0; at < t.values.size(); at += columns) {
      quantize_row(t.dtype, std::span(t.values).subspan(at, columns), {}, row.data());
      writer.write(row);
    }
  }
  writer.finish();
  return image;
}

}  // namespace adder::testing
