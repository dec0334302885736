#include "model/weights.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/quant.h"
#include "io/sha256.h"

namespace adder {
namespace {

using Shape = std::vector<int64_t>;

// Buffers that some checkpoints carry and no model needs.
bool is_ignored(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.starts_with("mtp.");
}

void check_dtype(const StoredTensor& t) {
  const bool known = t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16;
  if (!known && !is_quantized(t.dtype)) {
    bad_input("{}: tensor '{}': expected dtype F32, F16, BF16 or a block format, got {}", t.file,
              t.name, dtype_name(t.dtype));
  }
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

// Visits every element's storage index in row-major order of the tensor's shape.
void for_each_index(const StoredTensor& t, const std::function<void(int64_t, int64_t)>& visit) {
  const size_t rank = t.shape.size();
  Shape at(rank, 0);
  const int64_t n = t.size();
  for (int64_t i = 0; i < n; ++i) {
    int64_t index = 0;
    for (size_t axis = 0; axis < rank; ++axis) index += at[axis] * t.stride[axis];
    visit(i, index);
    for (size_t axis = rank; axis-- > 0 && ++at[axis] == t.shape[axis];) at[axis] = 0;
  }
}

// Visits every element's value in row-major order.
void for_each_value(const StoredTensor& t, const std::function<void(int64_t, float)>& visit) {
  check_dtype(t);
  if (t.is_contiguous()) {  // as block formats always are
    const int64_t columns = t.shape.empty() ? 1 : t.shape.back();
    std::vector<float> row(static_cast<size_t>(columns));
    const size_t bytes = row_bytes(t.dtype, columns);
    for (int64_t i = 0, n = t.size(); i < n; i += columns) {
      dequantize_row(t.dtype, t.data + static_cast<size_t>(i / columns) * bytes, row);
      for (int64_t j = 0; j < columns; ++j) visit(i + j, row[static_cast<size_t>(j)]);
    }
    return;
  }
  for_each_index(t, [&](int64_t i, int64_t index) {
    float value = 0;
    dequantize_row(t.dtype, t.data + static_cast<size_t>(index) * dtype_size(t.dtype), {&value, 1});
    visit(i, value);
  });
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, Backend& backend, std::vector<Buffer>& owned)
      : checkpoint_(checkpoint), backend_(backend), owned_(owned) {}

  // A big matrix: from the file's own bytes, unless they do not lie row by row. When the backend
  // makes a copy, the file's pages are given back, so that no more than one matrix is held twice.
  Tensor matrix(const std::string& name, int64_t rows, int64_t cols,
                WeightUse use = WeightUse::kMatmul) {
    const StoredTensor& t = *take(name, {rows, cols}, true);
    check_dtype(t);
    const auto* bytes = t.data;
    Buffer in_order;
    if (!t.is_contiguous()) {
      in_order = allocate_host(static_cast<size_t>(t.size()) * dtype_size(t.dtype));
      auto* copy = static_cast<std::byte*>(in_order.data());
      const auto width = static_cast<int64_t>(dtype_size(t.dtype));
      for_each_index(t, [&](int64_t to, int64_t from) {
        std::memcpy(copy + to * width, t.data + from * width, static_cast<size_t>(width));
      });
      bytes = copy;
    }
    const Tensor host(const_cast<std::byte*>(bytes), t.dtype, {rows, cols});
    const Tensor imported = import(host, use);
    if (imported.data == bytes) {
      if (in_order.size() > 0) owned_.push_back(std::move(in_order));
    } else {
      checkpoint_.release(t);
    }
    return imported;
  }

  // A small tensor raised to float32. `place(i)` is where row-major element i goes, `map` what it
  // becomes.
  Tensor raised(const std::string& name, const Shape& shape, bool required,
                std::initializer_list<int64_t> as,
                const std::function<int64_t(int64_t)>& place = nullptr,
                float (*map)(float) = nullptr, std::string_view expected = "finite values") {
    const StoredTensor* t = take(name, shape, required);
    if (t == nullptr) return {};
    owned_.push_back(allocate_host(static_cast<size_t>(t->size()) * sizeof(float)));
    auto* values = static_cast<float*>(owned_.back().data());
    for_each_value(*t, [&](int64_t i, float value) {
      const float mapped = map ? map(value) : value;
      if (!std::isfinite(value) || !std::isfinite(mapped)) {
        bad_input("{}: tensor '{}': expected {}, got {} at element {}", t->file, name, expected,
                  value, i);
      }
      values[place ? place(i) : i] = mapped;
    });
    return import(Tensor(values, DType::kF32, as), WeightUse::kRows);
  }

  Tensor vector(const std::string& name, int64_t n, bool required = true) {
    return raised(name, {n}, required, {n});
  }

  void skip(const std::string& name) { used_.insert(name); }

  void refuse_unknown() const {
    for (const auto& [name, t] : checkpoint_.tensors()) {
      if (!used_.contains(name) && !is_ignored(name)) {
        bad_input("{}: unknown tensor '{}'", t.file, name);
      }
    }
  }

 private:
  const StoredTensor* take(const std::string& name, const Shape& shape, bool required) {
    const StoredTensor* t = checkpoint_.find(name);
    if (t == nullptr) {
      if (required) bad_input("{}: tensor '{}' is missing", checkpoint_.path(), name);
      return nullptr;
    }
    if (t->shape != shape) {
      bad_input("{}: tensor '{}': expected shape {}, got {}", t->file, name, shape_text(shape),
                shape_text(t->shape));
    }
    used_.insert(name);
    return t;
  }

  Tensor import(const Tensor& host, WeightUse use) {
    Buffer owner;
    const Tensor tensor = backend_.import_weight(host, use, &owner);
    if (owner.size() != 0) owned_.push_back(std::move(owner));
    return tensor;
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  std::vector<Buffer>& owned_;
  std::set<std::string, std::less<>> used_;
};

// The one place where A_log becomes A: float32 whatever the file's dtype, and scaled so that the
// scans can use exp2.
float decay_rate_log2e(float a_log) {
  return static_cast<float>(-std::exp(static_cast<double>(a_log)) * std::numbers::log2e);
}

// GGUF holds A itself. A positive one would grow the state without end.
float scaled_rate(float a) {
  if (!(a <= 0.0f)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(static_cast<double>(a) * std::numbers::log2e);
}

std::function<int64_t(int64_t)> transposed(int64_t rows, int64_t cols) {
  return [=](int64_t i) { return (i % cols) * rows + i / cols; };
}

Tensor load_rates(Loader& load, const std::string& name, bool is_gguf, const Shape& shape,
                  std::initializer_list<int64_t> as,
                  const std::function<int64_t(int64_t)>& place = nullptr) {
  if (is_gguf) {
    return load.raised(name, shape, true, as, place, scaled_rate, "finite values up to 0");
  }
  return load.raised(name, shape, true, as, place, decay_rate_log2e);
}

LayerWeights load_layer(Loader& load, const std::function<std::string(std::string_view)>& name,
                        const ModelConfig& c, const Checkpoint& checkpoint) {
  LayerWeights w;
  const bool is_gguf = checkpoint.dialect() == Dialect::kGguf;
  const int64_t channels = c.conv_channels();
  w.norm = load.vector(name("norm.weight"), c.d_model);
  w.in_proj_bias = load.vector(name("mixer.in_proj.bias"), c.in_proj_rows(), false);
  int64_t in_rows = c.in_proj_rows();
  if (const std::string dt = name("mixer.in_proj_dt.weight"); checkpoint.find(dt) != nullptr) {
    in_rows -= c.n_heads;
    w.in_proj_dt = load.matrix(dt, c.n_heads, c.d_model);
    if (w.in_proj_bias) {
      w.in_proj_dt_bias = w.in_proj_bias.slice(0, in_rows, c.n_heads);
      w.in_proj_bias = w.in_proj_bias.slice(0, 0, in_rows);
    }
  }
  w.in_proj = load.matrix(name("mixer.in_proj.weight"), in_rows, c.d_model);
  w.conv_weight = load.raised(name("mixer.conv1d.weight"), {channels, 1, c.d_conv}, true,
                              {c.d_conv, channels}, transposed(channels, c.d_conv));
  w.conv_bias = load.vector(name("mixer.conv1d.bias"), channels, false);
  w.out_proj = load.matrix(name("mixer.out_proj.weight"), c.d_model, c.d_inner);
  w.out_proj_bias = load.vector(name("mixer.out_proj.bias"), c.d_model, false);
  if (c.mixer == MixerKind::kMamba1) {
    w.x_proj = load.matrix(name("mixer.x_proj.weight"), c.dt_rank + 2 * c.d_state, c.d_inner);
    w.dt_proj = load.matrix(name("mixer.dt_proj.weight"), c.d_inner, c.dt_rank);
    w.dt_bias = load.vector(name("mixer.dt_proj.bias"), c.d_inner);
    w.A_log2e = load_rates(load, name("mixer.A_log"), is_gguf, {c.d_inner, c.d_state},
                           {c.d_state, c.d_inner}, transposed(c.d_inner, c.d_state));
    w.D = load.vector(name("mixer.D"), c.d_inner);
    return w;
  }
  w.dt_bias = load.vector(name("mixer.dt_bias"), c.n_heads);
  w.A_log2e = load_rates(load, name("mixer.A_log"), is_gguf, {c.n_heads}, {c.n_heads});
  w.gated_norm = load.vector(name("mixer.norm.weight"), c.d_inner, c.gated_norm);
  const StoredTensor* d = checkpoint.find(name("mixer.D"));
  if (d != nullptr && d->shape == Shape{c.d_inner} && c.headdim > 1) {  // D_has_hdim
    w.D = load.vector(name("mixer.D"), c.d_inner).reshape({c.n_heads, c.headdim});
  } else {
    w.D = load.vector(name("mixer.D"), c.n_heads);
  }
  return w;
}

}  // namespace

Weights Weights::load(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend) {
  Weights w;
  const TensorNames names = tensor_names(checkpoint);
  Loader loader(checkpoint, backend, w.owned_);
  w.embedding = loader.matrix(names.embedding, config.vocab_rows, config.d_model, WeightUse::kRows);
  if (config.tied_head) loader.skip(names.lm_head);  // a file may hold it all the same
  if (config.tied_head) w.lm_head = backend.matmul_view(w.embedding);
  if (!w.lm_head)
    w.lm_head = loader.matrix(config.tied_head ? names.embedding : names.lm_head, config.vocab_rows,
                              config.d_model);
  w.norm_f = loader.vector(names.norm_f, config.d_model);
  w.layers.reserve(static_cast<size_t>(config.n_layer));
  for (int64_t i = 0; i < config.n_layer; ++i) {
    const auto name = [&](std::string_view suffix) { return names.layer(i, suffix); };
    w.layers.push_back(load_layer(loader, name, config, checkpoint));
  }
  loader.refuse_unknown();
  return w;
}

const StoredTensor* find_non_finite(const Checkpoint& checkpoint) {
  for (const auto& item : checkpoint.tensors()) {  // clang 14 captures no structured bindings
    const StoredTensor& t = item.second;
    if (is_ignored(t.name)) continue;
    bool finite = true;
    for_each_value(t, [&](int64_t, float value) { finite = finite && std::isfinite(value); });
    if (!finite) return &t;
  }
  return nullptr;
}

std::string fingerprint(const Checkpoint& checkpoint, const ModelConfig& config) {
  // 64 samples of 64 bytes tell fine-tunes apart: training moves every weight of a tensor it
  // trains.
  constexpr size_t kSamples = 64, kSampleBytes = 64;
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  add(fmt::format("{} {} {} {} {} {} {} {}", config.family, config.norm_eps,
                  config.bcdt_rms_eps.value_or(-1.0f), config.norm_before_gate, config.dt_min,
                  config.dt_max, config.d_state, config.vocab_size));
  for (const auto& item : checkpoint.tensors()) {
    const StoredTensor& t = item.second;
    add(fmt::format("\n{} {} {} {}", t.name, dtype_name(t.dtype), shape_text(t.shape),
                    shape_text(t.stride)));
    if (!t.is_contiguous()) {  // rare: strided tensors of torch files, never of block formats
      const size_t width = dtype_size(t.dtype);
      for_each_index(t, [&](int64_t, int64_t index) {
        hash.update(std::span(t.data + static_cast<size_t>(index) * width, width));
      });
      continue;
    }
    const size_t bytes = row_bytes(t.dtype, t.size());
    const size_t step = std::max(kSampleBytes, bytes / kSamples);
    for (size_t at = 0; at < bytes; at += step) {
      hash.update(std::span(t.data + at, std::min(kSampleBytes, bytes - at)));
    }
  }
  return hash.finish();
}

}  // namespace adder
