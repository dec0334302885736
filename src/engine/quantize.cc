#include "engine/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

#include "backends/registry.h"
#include "core/error.h"
#include "core/quant.h"
#include "core/thread_pool.h"
#include "engine/atomic_file.h"
#include "engine/gguf_metadata.h"
#include "engine/model_folder.h"
#include "engine/quantize_plan.h"

#include "io/gguf_writer.h"
#include "io/safetensors_writer.h"
#include "io/sha256.h"
#include "io/tensor_values.h"
#include "model/weights.h"

namespace adder {
namespace {

namespace fs = std::filesystem;
using Digest = std::array<std::byte, 32>;

constexpr int64_t kChunkElements = int64_t{1} << 21;  // in flight at once

// Sums over a row, in an order that no thread decides.
struct RowError {
  double squared_error = 0, squares = 0, largest = 0;
  int64_t not_finite = -1;  // column of the first value that is not, in the source or rounded
};

class TensorConverter {
 public:
  TensorConverter(const QuantizeOptions& options, ThreadPool& pool)
      : options_(options), pool_(pool), scratch_(static_cast<size_t>(pool.size())) {}

  // Rounds the tensor and hands its bytes to `write` in order. Calls `on_rows` with the number of
  // elements done since the last call.
  TensorReport convert(const PlannedTensor& p, const ByteSink& write,
                       const std::function<void(int64_t)>& on_rows) {
    const int64_t columns = p.source->shape.empty() ? 1 : p.source->shape.back();
    int64_t elements = 1;
    for (const int64_t dim : p.shape) elements *= dim;
    const int64_t rows = elements / columns;
    const auto weight = options_.importance.find(p.source->name);
    const std::span<const float> importance =
        weight == options_.importance.end() ? std::span<const float>{} : weight->second;

    TensorReport report{p.name, p.source->dtype, p.dtype, p.shape};
    const auto same_bytes = [&](const StoredTensor& t) {
      return t.dtype == p.dtype && t.is_contiguous();
    };
    if (p.map == nullptr && same_bytes(*p.source) && (p.rest == nullptr || same_bytes(*p.rest))) {
      const int64_t rest = p.rest == nullptr ? 0 : p.rest->size() / columns;
      copy(*p.source, p.first_row, rows - rest, columns, write, on_rows);
      if (p.rest != nullptr) copy(*p.rest, 0, rest, columns, write, on_rows);
      report.bits_per_weight =
          8.0 * static_cast<double>(row_bytes(p.dtype, elements)) / static_cast<double>(elements);
      return report;
    }
    double squared_error = 0, squares = 0;
    const int64_t chunk = std::max<int64_t>(1, kChunkElements / columns);
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t n = std::min(chunk, rows - begin);
      bytes_.resize(row_bytes(p.dtype, n * columns));
      errors_.assign(static_cast<size_t>(n), {});
      for (Scratch& s : scratch_) {
        s.values.resize(static_cast<size_t>(columns));
        s.rounded.resize(static_cast<size_t>(columns));
      }
      pool_.parallel_for(
          n, std::max<int64_t>(1, 8192 / columns), [&](int64_t first, int64_t last, int thread) {
            for (int64_t i = first; i < last; ++i)
              convert_row(p, begin, i, columns, importance, scratch_[static_cast<size_t>(thread)]);
          });
      for (int64_t i = 0; i < n; ++i) {
        const RowError& e = errors_[static_cast<size_t>(i)];
        if (e.not_finite >= 0) refuse(p, (begin + i) * columns + e.not_finite);
        squared_error += e.squared_error;
        squares += e.squares;
        report.max_error = std::max(report.max_error, e.largest);
      }
      write(bytes_);
      on_rows(n * columns);
    }
    report.relative_rms = squares > 0 ? std::sqrt(squared_error / squares) : 0;
    report.bits_per_weight =
        8.0 * static_cast<double>(row_bytes(p.dtype, elements)) / static_cast<double>(elements);
    return report;
  }

 private:
  struct Scratch {
    std::vector<float> values, rounded;
  };

  static void copy(const StoredTensor& t, int64_t first_row, int64_t rows, int64_t columns,
                   const ByteSink& write, const std::function<void(int64_t)>& on_rows) {
    const int64_t chunk = std::max<int64_t>(1, kChunkElements / columns);
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t n = std::min(chunk, rows - begin);
      write({t.data + row_bytes(t.dtype, (first_row + begin) * columns),
             row_bytes(t.dtype, n * columns)});
      on_rows(n * columns);
    }
  }

  void convert_row(const PlannedTensor& p, int64_t begin, int64_t i, int64_t columns,
                   std::span<const float> importance, Scratch& s) {
    const Place place = place_of(p, (begin + i) * columns);
    read_values(*place.tensor, place.element, s.values);
    if (p.map != nullptr) std::transform(s.values.begin(), s.values.end(), s.values.begin(), p.map);
    std::byte* to = bytes_.data() + row_bytes(p.dtype, i * columns);
    RowError& e = errors_[static_cast<size_t>(i)];
    if (!all_finite(s.values, e)) return;
    quantize_row(p.dtype, s.values, importance, to);
    dequantize_row(p.dtype, to, s.rounded);
    if (!all_finite(s.rounded, e)) return;
    for (size_t k = 0; k < s.values.size(); ++k) {
      const double error = static_cast<double>(s.rounded[k]) - s.values[k];
      e.squared_error += error * error;
      e.squares += static_cast<double>(s.values[k]) * s.values[k];
      e.largest = std::max(e.largest, std::abs(error));
    }
  }

  struct Place {
    const StoredTensor* tensor;
    int64_t element;
  };
  // Where an element of the output comes from.
  static Place place_of(const PlannedTensor& p, int64_t element) {
    const int64_t columns = p.source->shape.empty() ? 1 : p.source->shape.back();
    const int64_t at = p.first_row * columns + element;
    const bool in_rest = p.rest != nullptr && at >= p.source->size();
    return in_rest ? Place{p.rest, at - p.source->size()} : Place{p.source, at};
  }

  static bool all_finite(const std::vector<float>& values, RowError& e) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (std::isfinite(values[k])) continue;
      e.not_finite = static_cast<int64_t>(k);
      return false;
    }
    return true;
  }

  [[noreturn]] static void refuse(const PlannedTensor& p, int64_t element) {
    const auto [tensor, at] = place_of(p, element);
    const StoredTensor& t = *tensor;
    float value = 0;
    // Block formats are read in whole blocks.
    std::vector<float> block(static_cast<size_t>(block_shape(t.dtype).elements));
    const int64_t in_block = at % static_cast<int64_t>(block.size());
    read_values(t, at - in_block, block);
    value = block[static_cast<size_t>(in_block)];
    if (std::isfinite(value)) {
      bad_input("{}: tensor '{}': {} cannot hold {} at element {}; BF16 can", t.file, t.name,
                dtype_name(p.dtype), value, at);
    }
    bad_input("{}: tensor '{}': expected finite values, got {} at element {}", t.file, t.name,
              value, at);
  }

  const QuantizeOptions& options_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // per thread
  std::vector<std::byte> bytes_;
  std::vector<RowError> errors_;  // per row of the chunk
};

// Opens what was written and compares it with what should have been.
void verify(const std::string& path, const std::string& target, const ModelConfig& want,
            const std::vector<PlannedTensor>& plan, const std::vector<Digest>& digests) {
  const Checkpoint written = Checkpoint::open(path);
  if (written.tensors().size() != plan.size()) {
    fail(ErrorCode::kIo, "{}: read back: expected {} tensors, got {}", target, plan.size(),
         written.tensors().size());
  }
  Sha256 hash;
  for (size_t i = 0; i < plan.size(); ++i) {
    const StoredTensor* t = written.find(plan[i].name);
    const bool listed = t != nullptr && t->dtype == plan[i].dtype && t->is_contiguous();
    if (listed) hash.update({t->data, row_bytes(t->dtype, t->size())});
    if (!listed || hash.finish_bytes() != digests[i]) {
      fail(ErrorCode::kIo, "{}: read back: tensor '{}' is not what was written", target,
           plan[i].name);
    }
    written.release(*t);
  }
  const ModelConfig got = derive_config(written);
  const auto sizes = [](const ModelConfig& c) {
    return std::array{c.n_layer, c.d_model, c.d_inner,  c.d_state,    c.d_conv,
                      c.dt_rank, c.n_heads, c.n_groups, c.vocab_rows, c.vocab_size};
  };
  if (got.family != want.family || sizes(got) != sizes(want) || got.norm_eps != want.norm_eps) {
    fail(ErrorCode::kInternal, "{}: read back: another model than the source", target);
  }
  Weights::load(written, got, *make_backend("ref"));  // every tensor is there and known
}

std::unique_ptr<TensorWriter> make_writer(bool gguf, const Checkpoint& source,
                                          const ModelConfig& config,
                                          const std::vector<PlannedTensor>& plan, ByteSink sink,
                                          std::vector<std::string>& warnings) {
  if (!gguf) return std::make_unique<SafetensorsWriter>(std::move(sink));
  auto writer = std::make_unique<GgufWriter>(std::move(sink));
  const std::string in_proj = gguf_names().layer(0, "mixer.in_proj.weight");
  DType type = DType::kF32;
  for (const PlannedTensor& p : plan) {
    if (p.name == in_proj) type = p.dtype;
  }
  const auto more = add_gguf_metadata(*writer, source, config, type);
  warnings.insert(warnings.end(), more.begin(), more.end());
  return writer;
}

void check_options(const Checkpoint& source, const std::string& target, bool gguf,
                   const QuantizeOptions& o) {
  constexpr std::array kTypes = {DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0,
                                 DType::kQ4_K};
  ADDER_CHECK(!o.type || std::find(kTypes.begin(), kTypes.end(), *o.type) != kTypes.end(),
              "type: expected BF16, F16, Q8_0, Q4_0 or Q4_K, got {}", dtype_name(*o.type));
  std::error_code ignored;
  if (fs::equivalent(target, source.path(), ignored)) {
    bad_input("{}: expected another target than the source", target);
  }
  if (gguf) return;
  if (o.type && is_quantized(*o.type)) {
    bad_input(
        "{}: expected a path that ends in .gguf for {}; a folder of safetensors holds BF16 "
        "and F16 only",
        target, dtype_name(*o.type));
  }
  const std::string extension = fs::path(target).extension().string();
  if (extension == ".safetensors" || extension == ".bin" || extension == ".pt") {
    bad_input(
        "{}: expected a path that ends in .gguf, or a folder for model.safetensors and its "
        "config",
        target);
  }
}

}  // namespace

QuantizeReport quantize_model(const Checkpoint& source, const std::string& target,
                              const QuantizeOptions& o) {
  const bool gguf = fs::path(target).extension() == ".gguf";
  check_options(source, target, gguf, o);
  const ModelConfig config = derive_config(source);
  Weights::load(source, config, *make_backend("ref"));  // refuses what is not a whole model
  const bool from_gguf = source.dialect() == Dialect::kGguf;
  const PlanNames names = gguf                   ? PlanNames::kGguf
                          : from_gguf || !o.type ? PlanNames::kHuggingFace
                                                 : PlanNames::kSource;
  std::vector<PlannedTensor> plan =
      plan_tensors(source, config, {o.type, names, o.llama_compatible});
  if (!gguf) {  // no gaps in the file: wider types first keep all aligned
    std::stable_sort(plan.begin(), plan.end(), [](const auto& a, const auto& b) {
      return dtype_size(a.dtype) > dtype_size(b.dtype);
    });
  }

  // A folder is built beside the target and renamed as a whole.
  std::optional<TemporaryFolder> folder;
  if (!gguf) folder.emplace(target);
  AtomicFile file(gguf ? target : folder->path() + "/model.safetensors");
  QuantizeReport report;
  const auto writer = make_writer(
      gguf, source, config, plan, [&](std::span<const std::byte> bytes) { file.write(bytes); },
      report.warnings);
  int64_t done = 0, total = 0;
  for (const PlannedTensor& p : plan) {
    writer->declare(p.name, p.dtype, p.shape);
    int64_t elements = 1;
    for (const int64_t dim : p.shape) elements *= dim;
    total += elements;
  }

  report.source_bytes = source.total_bytes();
  bool was_quantized = false;
  ThreadPool pool(o.threads);
  TensorConverter converter(o, pool);
  std::vector<Digest> digests;
  Sha256 hash;
  for (const PlannedTensor& p : plan) {
    report.tensors.push_back(converter.convert(
        p,
        [&](std::span<const std::byte> bytes) {
          writer->write(bytes);
          hash.update(bytes);
        },
        [&](int64_t elements) {
          if (o.cancel != nullptr && o.cancel->load()) {
            fail(ErrorCode::kIo, "{}: interrupted; nothing was written", target);
          }
          done += elements;
          if (o.on_progress) o.on_progress(done, total);
        }));
    digests.push_back(hash.finish_bytes());
    report.bytes += writer->declared()[digests.size() - 1].bytes;
    was_quantized = was_quantized || is_quantized(p.source->dtype);
    source.release(*p.source);
    if (p.rest != nullptr) source.release(*p.rest);
  }
  writer->finish();
  const std::string dt_rows = gguf_names().layer(0, "mixer.in_proj_dt.weight");
  if (!o.type && std::any_of(plan.begin(), plan.end(),
                             [&](const PlannedTensor& p) { return p.name == dt_rows; })) {
    report.warnings.emplace_back(
        "llama.cpp cannot run this model: in_proj is in two parts of different types, which adder "
        "quantize --llama-compatible joins");
  }
  if (o.type) {
    const DType type = type_for_model(*o.type, config);
    if (type != *o.type) {
      report.warnings.push_back(fmt::format("d_model {} is no multiple of {}: {} instead of {}",
                                            config.d_model, block_shape(*o.type).elements,
                                            dtype_name(type), dtype_name(*o.type)));
    }
  }
  if (was_quantized && o.type) {
    report.warnings.emplace_back(
        "the source is quantized already; its errors and the new ones add up");
  }
  if (gguf) {
    verify(file.temporary(), target, config, plan, digests);
    file.commit();
    return report;
  }
  file.commit();
  const bool keeps_config = names == PlanNames::kSource;
  write_companions(source,
                   keeps_config ? source.config().dump() : hugging_face_config(config, source),
                   folder->path());
  verify(folder->path(), target, config, plan, digests);
  folder->commit();
  return report;
}

}  // namespace adder
